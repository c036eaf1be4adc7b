use super::*;
use crate::filter::snapshot::Taken;

const JOURNAL: Extent = Extent { id: [3; 16], first: 5, next: 20 };

fn header(now: Moment) -> Header {
    Header {
        keyspace: "users".into(),
        written_by: "test".into(),
        hash: HASH.into(),
        secret: Hex([7; 192]),
        key_form: "integer".into(),
        basis: Hex(9u64.to_be_bytes()),
        kind: "bloom".into(),
        capacity: 1000,
        rate: 0.001,
        generation: 3,
        items: 5,
        counted: vec![5],
        taken: age::taken(now),
        scan_age: 60_000_000_000,
        log: Some(LogMark { identity: Hex([2; 16]), millis: 4, sequence: 5, made: 6 }),
        polls: Some(vec![PollMark {
            watermark: WatermarkText::Integer("-7".into()),
            age: 1_000_000_000,
            open_for: 2_000_000_000,
        }]),
        journal: JournalMark { id: Hex(JOURNAL.id), next: 10 },
        proven: true,
        layers: Vec::new(),
    }
}

fn expected(freshness: Freshness, has_log: bool) -> Expected {
    Expected {
        keyspace: "users".into(),
        basis: 9,
        form: Some(KeyForm::Integer),
        freshness,
        max_staleness: Duration::from_secs(600),
        announces: true,
        has_log,
        polled_sources: usize::from(freshness == Freshness::Polled),
        journal: Some(JOURNAL),
    }
}

fn refused(header: &Header, expected: &Expected, now: Moment) -> String {
    format!("{:?}", validate(header, expected, now).map(|_| ()).err())
}

#[test]
fn a_snapshot_tells_from_where_on_its_filter_has_to_be_completed() {
    let now = Moment::now();
    for freshness in [Freshness::Announced, Freshness::Polled, Freshness::Rebuilt] {
        for has_log in [false, true] {
            let validated = validate(&header(now), &expected(freshness, has_log), Moment::now()).unwrap();
            let since = Moment::now().since(validated.scan_started);
            assert!((60..120).contains(&since.as_secs()), "{since:?}");
            assert_eq!(validated.log.is_some(), has_log);
            assert_eq!(
                (&validated.polls[0].from, validated.polls[0].open_for),
                (&Watermark::Integer(-7), Duration::from_secs(2))
            );
            assert!((1..60).contains(&Moment::now().since(validated.polls[0].began).as_secs()));
        }
    }
}

#[test]
fn a_snapshot_of_anything_else_is_refused() {
    let now = Moment::now();
    let announced = || expected(Freshness::Announced, false);
    for (why, header, expected) in [
        ("Keyspace(\"orders\")", Header { keyspace: "orders".into(), ..header(now) }, announced()),
        ("Hash(\"md5\")", Header { hash: "md5".into(), ..header(now) }, announced()),
        ("Form(\"text\")", Header { key_form: "text".into(), ..header(now) }, announced()),
        ("Form(\"odd\")", Header { key_form: "odd".into(), ..header(now) }, Expected { form: None, ..announced() }),
        ("Basis", Header { basis: Hex([0; 8]), ..header(now) }, announced()),
        (
            "Place(\"the delta log is to be read\")",
            Header { log: None, ..header(now) },
            expected(Freshness::Announced, true),
        ),
        ("Static", header(now), expected(Freshness::Static, false)),
        (
            "Place(\"its sources are to be polled\")",
            Header { polls: None, ..header(now) },
            expected(Freshness::Polled, true),
        ),
        (
            "Place(\"its sources are to be polled\")",
            header(now),
            Expected { polled_sources: 2, ..expected(Freshness::Polled, true) },
        ),
    ] {
        assert_eq!(refused(&header, &expected, now), format!("Some({why})"));
    }
}

#[test]
fn announces_missing_in_the_journal_make_a_snapshot_useless() {
    let now = Moment::now();
    for (journal, fits) in [
        (Some(JOURNAL), true),
        (Some(Extent { first: 10, ..JOURNAL }), true),
        (Some(Extent { first: 11, ..JOURNAL }), false),
        // Older than the snapshot: restored from a backup, or another folder's.
        (Some(Extent { next: 9, ..JOURNAL }), false),
        (Some(Extent { id: [4; 16], ..JOURNAL }), false),
        (None, false),
    ] {
        let expected = Expected { journal, ..expected(Freshness::Announced, false) };
        assert_eq!(refused(&header(now), &expected, now) == "None", fits, "{journal:?}");
    }
}

#[test]
fn the_age_of_a_scan_goes_on_counting_and_never_backwards() {
    let now = Moment::now();
    let rebuilt = expected(Freshness::Rebuilt, true);
    let of = |scan_age: u64, unix: i64, boot: &str| {
        let now_taken = age::taken(now);
        let taken = Taken {
            unix_nanos: now_taken.unix_nanos.saturating_add_signed(-unix * 1_000_000_000),
            boot_id: boot.into(),
            ..now_taken
        };
        Header { taken, scan_age: scan_age * 1_000_000_000, ..header(now) }
    };
    let other = "another boot";
    for (header, why) in [
        (of(500, 50, other), "None"),
        (of(500, 200, other), "Aged"),
        (of(601, 0, other), "Aged"),
        (of(1, 1_000_000_000, other), "Aged"),
        (of(1, -3600, other), "Future"),
    ] {
        let message = refused(&header, &rebuilt, now);
        assert!(message.contains(why), "{message} for {header:?}");
    }
    // Where nothing depends on it, it may be as old as it likes, but for a clock that was set back.
    assert_eq!(refused(&of(10_000, 1_000_000, other), &expected(Freshness::Announced, true), now), "None");
}
