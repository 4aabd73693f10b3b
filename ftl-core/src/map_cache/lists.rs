//! Doubly linked lists of small numbers, threaded through one array: an order of use. Every change
//! is O(1) and allocates only for a larger number than any before.
use crate::int::{index, to_u32};
use crate::ram::{vec_bytes, vec_most};

/// Neighbours on a circular list. Alone on it, a link is its own neighbour.
#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u32,
    older: u32,
}

/// A fixed number of lists; a node is on one of them at most.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    /// One link per list, its end and its beginning; then one per node.
    links: Vec<Link>,
    lists: u32,
}

impl Lists {
    /// Creates `lists` empty lists.
    pub(crate) fn new(lists: u32) -> Self {
        Lists {
            links: (0..lists).map(|i| Link { newer: i, older: i }).collect(),
            lists,
        }
    }

    /// Puts a node that is on no list at the new end of one.
    #[inline]
    pub(crate) fn push(&mut self, list: u32, node: u32) {
        let at = self.lists + node;
        while to_u32(self.links.len()) <= at {
            let own = to_u32(self.links.len());
            self.links.push(Link {
                newer: own,
                older: own,
            });
        }
        debug_assert_eq!(
            self.links[index(at)].newer,
            at,
            "node {node} is already in a list"
        );
        debug_assert!(list < self.lists, "list {list} of {}", self.lists);
        let newest = self.links[index(list)].older;
        self.links[index(at)] = Link {
            newer: list,
            older: newest,
        };
        self.links[index(newest)].newer = at;
        self.links[index(list)].older = at;
    }

    /// Removes a node from its list.
    #[inline]
    pub(crate) fn remove(&mut self, node: u32) {
        let at = self.lists + node;
        let Link { newer, older } = self.links[index(at)];
        self.links[index(older)].newer = newer;
        self.links[index(newer)].older = older;
        self.links[index(at)] = Link {
            newer: at,
            older: at,
        };
    }

    /// Moves a node to the new end of a list.
    #[inline]
    pub(crate) fn touch(&mut self, list: u32, node: u32) {
        if self.links[index(list)].older != self.lists + node {
            self.remove(node);
            self.push(list, node);
        }
    }

    /// Gives a node another number, which is on no list; the node keeps its position.
    pub(crate) fn rename(&mut self, node: u32, other: u32) {
        let (from, to) = (self.lists + node, self.lists + other);
        debug_assert_eq!(
            self.links[index(to)].newer,
            to,
            "node {other} is already in a list"
        );
        let Link { newer, older } = self.links[index(from)];
        debug_assert_ne!(newer, from, "node {node} is in no list");
        self.links[index(to)] = Link { newer, older };
        self.links[index(older)].newer = to;
        self.links[index(newer)].older = to;
        self.links[index(from)] = Link {
            newer: from,
            older: from,
        };
    }

    /// Returns the oldest node of the list.
    #[inline]
    pub(crate) fn oldest(&self, list: u32) -> Option<u32> {
        self.links[index(list)].newer.checked_sub(self.lists)
    }

    /// Returns the nodes of a list, the newest first.
    pub(crate) fn newest_first(&self, list: u32) -> impl Iterator<Item = u32> {
        let step = move |at: &u32| Some(self.links[index(*at)].older);
        std::iter::successors(step(&list), step).map_while(|at| at.checked_sub(self.lists))
    }

    /// Returns the upper bound of the bytes for nodes below this number.
    pub(crate) fn bytes_most(&self, nodes: u64) -> u64 {
        vec_most::<Link>(nodes + u64::from(self.lists))
    }

    /// Returns the allocated bytes.
    pub(crate) fn bytes(&self) -> u64 {
        vec_bytes::<Link>(self.links.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::SplitMix;
    use std::collections::VecDeque;

    #[test]
    fn lists_agree_with_queues_under_random_changes() {
        let mut lists = Lists::new(2);
        let mut model = [VecDeque::new(), VecDeque::new()];
        let mut rng = SplitMix::new(4);
        for _ in 0..20_000 {
            let (list, node) = (rng.below(2) as usize, rng.below(30) as u32);
            let home = model.iter().position(|queue| queue.contains(&node));
            match home {
                None => {
                    lists.push(list as u32, node);
                    model[list].push_back(node);
                }
                Some(home) => {
                    model[home].retain(|other| *other != node);
                    if rng.one_in(3) {
                        lists.remove(node);
                    } else if home == list {
                        lists.touch(list as u32, node);
                        model[list].push_back(node);
                    } else {
                        lists.remove(node);
                        lists.push(list as u32, node);
                        model[list].push_back(node);
                    }
                }
            }
            for (list, queue) in (0..).zip(&model) {
                assert_eq!(lists.oldest(list), queue.front().copied());
                assert!(lists.newest_first(list).eq(queue.iter().rev().copied()));
            }
        }
    }
}
