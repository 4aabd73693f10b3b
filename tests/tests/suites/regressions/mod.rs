//! Fixed bugs, one file each; a file's header describes the bug. They run for every scheme, like
//! any other suite.

mod host_full_in_checkpoint;
mod mount_erased_before_rescue;
mod mounts_cut_in_a_row;
mod mounts_in_a_row;
mod programs_fail_before_a_cut;
mod rotted_mapping_page;
mod scrub_of_short_sessions;
mod torn_page_after_clean_stop;
mod torn_page_left_alone;
mod torn_page_without_mark;
mod trim_copy_lost;
