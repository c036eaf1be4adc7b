use super::*;
use crate::key::{KeyForm, KeySecret};

const WINDOW: Duration = Duration::from_secs(16);
const ROOMY: MemoryLimits = MemoryLimits { count: 1_000_000, bytes: 1 << 30, cost: 40, keeps_keys: true };

fn key(text: &str) -> (KeyHash, Key) {
    let key = KeyForm::Text.canonical(text.as_bytes()).unwrap();
    (KeySecret::new([7; KeySecret::LEN]).hash(&key), key)
}

fn at(seconds: u64) -> Moment {
    Moment::from_nanos(1).plus(Duration::from_secs(seconds))
}

fn remember(recent: &Recent, text: &str, now: Moment) -> Result<KeyHash, Full> {
    let (hash, key) = key(text);
    recent.remember_all(&[hash], &[key], now).map(|()| hash)
}

fn own(recent: &Recent, now: Moment) -> Vec<String> {
    let (mut keys, mut place) = (Vec::new(), None);
    while let Some((chunk_place, chunk)) = recent.own_keys(place, now) {
        keys.extend(keys_of(&chunk).map(|key| String::from_utf8(key.to_vec()).unwrap()));
        place = Some(chunk_place);
    }
    keys
}

#[test]
fn a_key_is_remembered_for_its_window_and_hardly_longer() {
    for keeps_keys in [true, false] {
        let recent = Recent::new(WINDOW, MemoryLimits { keeps_keys, ..ROOMY });
        let first = remember(&recent, "a", at(0)).unwrap();
        let last = remember(&recent, "b", at(0).plus(Duration::from_millis(999))).unwrap();
        assert!(recent.contains(first, at(15)) && recent.contains(last, at(16)));
        assert!(!recent.contains(first, at(17)) && !recent.contains(last, at(17)));
        assert!(recent.hashes(at(17)).is_empty());
    }
}

#[test]
fn a_second_announce_begins_a_new_window() {
    let recent = Recent::new(WINDOW, ROOMY);
    let hash = remember(&recent, "a", at(0)).unwrap();
    remember(&recent, "a", at(5)).unwrap();
    remember(&recent, "b", at(12)).unwrap();
    assert!(recent.contains(hash, at(20)));
    assert_eq!(recent.hashes(at(22)), [key("b").0]);
    assert_eq!(own(&recent, at(22)), ["b"]);
}

#[test]
fn a_key_announced_again_and_again_takes_the_room_of_one() {
    for keyless in [false, true] {
        let recent = Recent::new(WINDOW, MemoryLimits { count: 2, ..ROOMY });
        for second in 0..100 {
            for _ in 0..100 {
                if keyless {
                    assert!(recent.remember_others(&[key("a").0], at(second)));
                } else {
                    remember(&recent, "a", at(second)).unwrap();
                }
            }
            let (count, bytes) = recent.held();
            assert_eq!(count, 1);
            assert!(bytes <= 40 + 17 * 5, "one key a slice at the most, not {bytes} bytes");
        }
        assert_eq!(recent.hashes(at(100)).len(), 1);
    }
}

#[test]
fn another_instance_s_word_of_a_key_does_not_take_its_key_away() {
    let recent = Recent::new(WINDOW, ROOMY);
    let hash = remember(&recent, "a", at(0)).unwrap();
    for second in [0, 1, 5] {
        assert!(recent.remember_others(&[hash], at(second)));
    }
    assert_eq!(own(&recent, at(10)), ["a"]);
    assert!(recent.contains(hash, at(20)) && !recent.contains(hash, at(22)));
    remember(&recent, "a", at(10)).unwrap();
    assert_eq!((recent.held().0, own(&recent, at(20))), (1, vec!["a".to_owned()]));
}

#[test]
fn more_polled_keys_than_fit_are_all_keys_and_leave_room_for_announces() {
    let recent = Recent::new(WINDOW, MemoryLimits { count: 4, ..ROOMY });
    let hashes = ["a", "b", "c"].map(|text| key(text).0);
    recent.remember_polled(&hashes[..2], at(0));
    assert!(recent.contains(hashes[0], at(0)) && !recent.contains(hashes[2], at(0)));
    recent.remember_polled(&hashes[2..], at(0));
    assert!(recent.contains(hashes[2], at(0)) && recent.contains(key("d").0, at(0)));
    assert!(remember(&recent, "e", at(0)).is_ok());
    recent.purge(at(17));
    assert!(!recent.contains(hashes[2], at(17)));
}

#[test]
fn it_is_bounded_in_keys_and_in_bytes_and_says_so() {
    let recent = Recent::new(WINDOW, MemoryLimits { count: 2, bytes: 100, ..ROOMY });
    remember(&recent, "a", at(0)).unwrap();
    remember(&recent, "b", at(0)).unwrap();
    assert_eq!(remember(&recent, "c", at(0)), Err(Full(2)));
    assert!(remember(&recent, "a", at(1)).is_ok(), "it is held already");
    assert!(remember(&recent, "c", at(18)).is_ok());
    assert_eq!(remember(&recent, "sixteen characters", at(18)), Err(Full(1)), "40 + 5 and 40 + 22 are over 100");
}

#[test]
fn memory_is_given_back_slice_by_slice() {
    let recent = Recent::new(WINDOW, ROOMY);
    for second in 0..16 {
        let keys: Vec<_> = (0..1000).map(|n| key(&format!("{second}:{n}"))).collect();
        let (hashes, keys): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
        recent.remember_all(&hashes, &keys, at(second)).unwrap();
    }
    for gone in 1..=16 {
        recent.purge(at(15 + gone));
        let inner = recent.inner.lock();
        assert_eq!((inner.slices.len() as u64, inner.count as u64), (16 - gone, 1000 * (16 - gone)));
        assert_eq!(inner.key_bytes, inner.slices.iter().map(|slice| slice.keys.bytes()).sum::<usize>());
    }
}

#[test]
fn what_moved_to_a_younger_slice_leaves_no_table_behind() {
    let recent = Recent::new(WINDOW, ROOMY);
    let hashes: Vec<_> = (0..10_000).map(|n| key(&n.to_string()).0).collect();
    for second in 0..15 {
        assert!(recent.remember_others(&hashes, at(second)));
    }
    recent.purge(at(15));
    let places: usize =
        recent.inner.lock().slices.iter().map(|slice| slice.keyless.capacity() + slice.own.capacity()).sum();
    assert!(places < 40_000, "{places} places for 10,000 keys");
    assert_eq!(recent.held().0, 10_000);
}

#[test]
fn own_keys_come_in_chunks_each_once() {
    let recent = Recent::new(WINDOW, ROOMY);
    let texts: Vec<String> =
        (0..3000).map(|n| format!("{n:0>length$}", length = 4 + n % 60)).chain(["x".repeat(100_000)]).collect();
    for (n, text) in (0..).zip(&texts) {
        remember(&recent, text, at(n / 300)).unwrap();
    }
    assert_eq!(own(&recent, at(10)), texts);
}

#[test]
fn own_keys_are_remembered_under_another_hash_for_a_whole_window() {
    let recent = Recent::new(WINDOW, ROOMY);
    remember(&recent, "a", at(0)).unwrap();
    assert!(recent.remember_others(&[key("b").0], at(0)));
    let (hashes, remembered) =
        recent.rehash_own(at(10), |bytes| key(&format!("{}'", std::str::from_utf8(bytes).unwrap())).0);
    assert_eq!((&hashes[..], remembered), (&[key("a'").0][..], Ok(())));
    assert!(["a", "b", "a'"].into_iter().all(|text| recent.contains(key(text).0, at(15))));
    assert!(recent.contains(hashes[0], at(25)));
    assert_eq!(own(&recent, at(25)), ["a"]);
    assert_eq!(recent.held().0, 3);
}

#[test]
fn a_shorter_window_of_later_closes_none_of_before() {
    let recent = Recent::new(WINDOW, ROOMY);
    let hash = remember(&recent, "a", at(0)).unwrap();
    recent.set_life(WINDOW / 30);
    assert_eq!(remember(&recent, "a", at(2)), Ok(hash));
    recent.purge(at(4));
    assert!(recent.contains(hash, at(0).plus(WINDOW - Duration::from_secs(1))));
    assert!(!recent.contains(hash, at(0).plus(WINDOW)));
}

#[test]
fn more_announces_of_others_than_fit_are_all_keys_and_hold_builds_up() {
    let recent = Recent::new(WINDOW, MemoryLimits { count: 2, ..ROOMY });
    let hashes = ["a", "b", "c"].map(|text| key(text).0);
    assert!(recent.remember_others(&hashes[..2], at(0)) && !recent.lacks_some(at(0)));
    assert!(!recent.remember_others(&hashes[2..], at(1)), "it has just begun");
    assert!(recent.remember_others(&hashes[2..], at(5)), "it goes on");
    assert!(recent.contains(hashes[2], at(20)) && recent.contains(key("d").0, at(20)));
    assert!(recent.lacks_some(at(20)) && !recent.lacks_some(at(21)));
    assert!(!recent.contains(key("d").0, at(21)));
}

#[test]
fn a_shorter_window_makes_no_more_slices() {
    let recent = Recent::new(WINDOW, ROOMY);
    remember(&recent, "before", at(0)).unwrap();
    recent.set_life(WINDOW / 30);
    for n in 0..1_600u64 {
        let now = at(0).plus(Duration::from_millis(n * 10));
        remember(&recent, &n.to_string(), now).unwrap();
        assert!(recent.inner.lock().slices.len() <= SLICES as usize + 2, "after {n}");
    }
}
