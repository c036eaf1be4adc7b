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
    assert_eq!(activity.due(start + HEADER, HEADER, IDLE), Due::HeadLate);
}

#[test]
fn keeping_alive_is_not_a_late_head_but_half_a_head_is() {
    let activity = Arc::new(new());
    let start = activity.started;
    activity.read(start);
    drop(activity.begin(false));
    let later = start + HEADER * 3;
    assert_eq!(activity.due(later, HEADER, IDLE), Due::At(later + HEADER), "idle, and that is fine");
    activity.read(later);
    activity.read(later + HEADER / 2);
    assert_eq!(activity.due(later + HEADER / 2, HEADER, IDLE), Due::At(later + HEADER), "more bytes buy no time");
    assert_eq!(activity.due(later + HEADER, HEADER, IDLE), Due::HeadLate);
}

#[test]
fn a_slow_answer_is_neither_late_nor_idle() {
    let activity = Arc::new(new());
    let start = activity.started;
    let request = activity.begin(false);
    // Its body arrives.
    activity.read(start);
    assert!(matches!(activity.due(start + 2 * IDLE.unwrap(), HEADER, IDLE), Due::At(_)));
    drop(request);
    assert_eq!(activity.due(start + 2 * IDLE.unwrap(), HEADER, IDLE), Due::Idle);
    assert!(matches!(activity.due(start + 2 * IDLE.unwrap(), HEADER, None), Due::At(_)));
}

#[test]
fn who_was_heard_of_since_is_idle_later() {
    let activity = Arc::new(new());
    let (start, idle) = (activity.started, IDLE.unwrap());
    for heard in [start, start + idle / 2] {
        activity.read(heard);
        drop(activity.begin(false));
        assert!(matches!(activity.due(heard + idle - HEADER, HEADER, IDLE), Due::At(_)));
        assert_eq!(activity.due(heard + idle, HEADER, IDLE), Due::Idle);
    }
}

#[test]
fn what_the_client_does_not_take_is_due_after_the_send_timeout() {
    const SEND: Duration = Duration::from_secs(30);
    let activity = new();
    let now = activity.started;
    let due = |at| activity.due(at, HEADER, IDLE).or_unsent(activity.unsent_due(at, SEND));
    assert_eq!(due(now), Due::At(now + HEADER));
    let response = activity.unsent().track(bytes::Bytes::from_static(b"value"));
    assert_eq!(due(Instant::now() + SEND), Due::Unsent, "whatever else is due");
    drop(response);
    activity.answered();
    assert_eq!(due(now + SEND), Due::At(now + SEND + HEADER));
    activity.sends(true);
    activity.blocked();
    assert_eq!(due(Instant::now() + SEND), Due::Unsent);
    activity.sends(false);
    assert!(matches!(due(Instant::now() + SEND), Due::At(_)));
}

#[test]
fn http2_pings_are_no_heads() {
    let activity = Arc::new(new());
    let start = activity.started;
    drop(activity.begin(true));
    activity.read(start);
    assert!(matches!(activity.due(start + HEADER * 2, HEADER, IDLE), Due::At(_)));
}
