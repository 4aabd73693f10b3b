use super::busy_poll::BusyPoll;
use super::*;

#[test]
fn only_a_brisk_client_is_lingered_for() {
    let mut linger = BusyPoll::new(Duration::from_millis(20));
    assert!(!linger.wants_more(), "nobody knows yet how brisk it is");
    linger.stop();
    assert!(linger.wants_more());
    std::thread::sleep(Duration::from_millis(25));
    assert!(!linger.wants_more(), "long enough");
    std::thread::sleep(Duration::from_millis(80));
    linger.stop();
    assert!(!linger.wants_more(), "it was slow the last time");
    assert!(!BusyPoll::new(Duration::ZERO).wants_more());
}
