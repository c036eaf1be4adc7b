use super::*;

const HEADER: Duration = Duration::from_secs(10);
const IDLE: Option<Duration> = Some(Duration::from_secs(300));

fn new() -> Activity {
    Activity::new(Arc::new(AtomicBool::new(false)))
}

#[test]
fn a_fresh_connection_owes_its_first_head() {
    let activity = new();
    let start = activity.started;
    assert_eq!(activity.due(start, HEADER, IDLE), Due::At(start + HEADER));
    assert_eq!(activity.due(start + HEADER, HEADER, IDLE), Due::HeaderTimeout);
}

#[test]
fn keeping_alive_is_not_a_late_head_but_half_a_head_is() {
    let activity = Arc::new(new());
    let start = activity.started;
    activity.record_read(start);
    drop(activity.begin_request(false));
    let later = start + HEADER * 3;
    assert_eq!(activity.due(later, HEADER, IDLE), Due::At(later + HEADER), "idle, and that is fine");
    activity.record_read(later);
    activity.record_read(later + HEADER / 2);
    assert_eq!(activity.due(later + HEADER / 2, HEADER, IDLE), Due::At(later + HEADER), "more bytes buy no time");
    assert_eq!(activity.due(later + HEADER, HEADER, IDLE), Due::HeaderTimeout);
}

#[test]
fn a_slow_answer_is_neither_late_nor_idle() {
    let activity = Arc::new(new());
    let start = activity.started;
    let request = activity.begin_request(false);
    // Its body arrives.
    activity.record_read(start);
    assert!(matches!(activity.due(start + 2 * IDLE.unwrap(), HEADER, IDLE), Due::At(_)));
    drop(request);
    assert_eq!(activity.due(start + 2 * IDLE.unwrap(), HEADER, IDLE), Due::IdleTimeout);
    assert!(matches!(activity.due(start + 2 * IDLE.unwrap(), HEADER, None), Due::At(_)));
}

#[test]
fn who_was_heard_of_since_is_idle_later() {
    let activity = Arc::new(new());
    let (start, idle) = (activity.started, IDLE.unwrap());
    for heard in [start, start + idle / 2] {
        activity.record_read(heard);
        drop(activity.begin_request(false));
        assert!(matches!(activity.due(heard + idle - HEADER, HEADER, IDLE), Due::At(_)));
        assert_eq!(activity.due(heard + idle, HEADER, IDLE), Due::IdleTimeout);
    }
}

#[test]
fn what_the_client_does_not_take_is_due_after_the_send_timeout() {
    const SEND: Duration = Duration::from_secs(30);
    let activity = new();
    let now = activity.started;
    let due = |at| activity.due(at, HEADER, IDLE).or_send_timeout(activity.send_due(at, SEND));
    assert_eq!(due(now), Due::At(now + HEADER));
    let response = activity.pending_responses().track(bytes::Bytes::from_static(b"value"));
    assert_eq!(due(Instant::now() + SEND), Due::SendTimeout, "whatever else is due");
    drop(response);
    activity.record_fast_answer();
    assert_eq!(due(now + SEND), Due::At(now + SEND + HEADER));
    activity.set_sending(true);
    activity.mark_blocked();
    assert_eq!(due(Instant::now() + SEND), Due::SendTimeout);
    activity.set_sending(false);
    assert!(matches!(due(Instant::now() + SEND), Due::At(_)));
}

#[test]
fn http2_pings_are_no_heads() {
    let activity = Arc::new(new());
    let start = activity.started;
    drop(activity.begin_request(true));
    activity.record_read(start);
    assert!(matches!(activity.due(start + HEADER * 2, HEADER, IDLE), Due::At(_)));
}
