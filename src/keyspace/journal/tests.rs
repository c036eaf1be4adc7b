use super::*;
use crate::key::KeyForm;

fn key(text: &str) -> Key {
    KeyForm::Text.canonical(text.as_bytes()).unwrap()
}

fn open(dir: &Path, life: Duration) -> (Journal, Vec<Key>) {
    let (journal, replayed) = Journal::open(dir, "users", life, Duration::ZERO).unwrap();
    assert!(!replayed.damaged);
    (journal, replayed.keys)
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_crash_and_after_a_second_one() {
    let dir = tempfile::tempdir().unwrap();
    let life = Duration::from_secs(60);
    let (journal, replayed) = open(dir.path(), life);
    assert!(replayed.is_empty());
    journal.append(&[key("a")]).await.unwrap();
    journal.append(&[key("b")]).await.unwrap();
    drop(journal);
    assert_eq!(open(dir.path(), life).1, [key("a"), key("b")]);
    assert_eq!(open(dir.path(), life).1, [key("a"), key("b")]);
}

#[tokio::test]
async fn records_past_two_windows_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), Duration::ZERO);
    for text in ["a", "b", "c"] {
        journal.append(&[key(text)]).await.unwrap();
    }
    drop(journal);
    assert_eq!(open(dir.path(), Duration::ZERO).1, [key("b"), key("c")]);
}

#[tokio::test]
async fn records_that_a_snapshot_needs_are_held_past_their_window() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), Duration::ZERO);
    journal.append(&[key("a")]).await.unwrap();
    let mark = journal.mark();
    journal.hold_from(Some(mark.next));
    for text in ["b", "c", "d"] {
        journal.append(&[key(text)]).await.unwrap();
    }
    drop(journal);
    let (journal, replayed) = Journal::open(dir.path(), "users", Duration::ZERO, Duration::ZERO).unwrap();
    assert!(replayed.keys.ends_with(&[key("b"), key("c"), key("d")]), "{:?}", replayed.keys);
    let extent = replayed.extent.unwrap();
    assert!(
        extent.id == mark.id.0 && extent.first <= mark.next && extent.next == mark.next + 3,
        "{extent:?} after {mark:?}"
    );
    // A later snapshot has them.
    journal.hold_from(Some(journal.mark().next));
    for text in ["e", "f"] {
        journal.append(&[key(text)]).await.unwrap();
    }
    drop(journal);
    let replayed = Journal::open(dir.path(), "users", Duration::ZERO, Duration::ZERO).unwrap().1;
    assert_eq!(replayed.keys, [key("e"), key("f")]);
    assert_eq!(replayed.extent.unwrap(), Extent { first: extent.next, next: extent.next + 2, ..extent });
}

#[tokio::test]
async fn more_than_is_held_for_a_snapshot_asks_for_one_and_then_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), Duration::ZERO);
    journal.hold_from(Some(0));
    let many: Vec<Key> = (0..HELD / 2 + 1).map(|i| key(&i.to_string())).collect();
    journal.append(&many).await.unwrap();
    journal.snapshot_wanted().await;
    for _ in 0..3 {
        journal.append(&many).await.unwrap();
    }
    drop(journal);
    let extent = Journal::open(dir.path(), "users", Duration::ZERO, Duration::ZERO).unwrap().1.extent.unwrap();
    assert!(extent.first > 0 && extent.next == 4 * many.len() as u64, "{extent:?}");
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_start_or_a_rotation_loses_no_number() {
    let dir = tempfile::tempdir().unwrap();
    let (young, old) = (dir.path().join("users.journal"), dir.path().join("users.journal.old"));
    let (journal, _) = open(dir.path(), Duration::ZERO);
    for text in ["a", "b", "c"] {
        journal.append(&[key(text)]).await.unwrap();
    }
    drop(journal);
    let before = fs::read(&old).unwrap();
    let extent = |keys: &[&str]| {
        let replayed = Journal::open(dir.path(), "users", Duration::from_secs(60), Duration::ZERO).unwrap().1;
        assert_eq!(replayed.keys, keys.iter().map(|text| key(text)).collect::<Vec<_>>());
        replayed.extent.map(|extent| (extent.first, extent.next))
    };
    assert_eq!(extent(&["b", "c"]), Some((1, 3)));
    // Started, and killed before the older was removed.
    fs::write(&old, before).unwrap();
    assert_eq!(extent(&["b", "c"]), Some((1, 3)));
    // Rotated, and killed before the younger had its name.
    fs::rename(&young, &old).unwrap();
    fs::write(dir.path().join("users.journal.new"), b"").unwrap();
    assert_eq!(extent(&["b", "c"]), Some((1, 3)));
    // Two files that don't follow each other.
    fs::copy(&young, &old).unwrap();
    fs::write(
        &young,
        Extent { id: [9; 16], first: 7, next: 7 }.file(7, None, (Duration::ZERO, Duration::ZERO), 0, &[]).0,
    )
    .unwrap();
    assert_eq!(extent(&["b", "c"]), None);
}

#[tokio::test]
async fn what_is_not_on_disk_is_not_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    // A journal that rotates with every write, in a folder that is gone.
    let (journal, _) = open(dir.path(), Duration::ZERO);
    journal.append(&[key("a")]).await.unwrap();
    fs::remove_dir_all(dir.path()).unwrap();
    assert!(matches!(journal.append(&[key("b")]).await, Err(JournalError::Io(_))));
    fs::create_dir(dir.path()).unwrap();
    journal.append(&[key("c")]).await.unwrap();
    drop(journal);
    let replayed = Journal::open(dir.path(), "users", Duration::ZERO, Duration::ZERO).unwrap().1;
    assert_eq!(
        (replayed.keys, replayed.damaged),
        (vec![key("c")], true),
        "what had been acknowledged went with the folder"
    );
}

#[tokio::test]
async fn a_full_disk_refuses_announces_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    // A journal that rotates with every write.
    let (journal, _) = open(dir.path(), Duration::ZERO);
    journal.append(&[key("a")]).await.unwrap();
    let next = dir.path().join("users.journal.new");
    std::os::unix::fs::symlink("/dev/full", &next).unwrap();
    for _ in 0..2 {
        let refused = journal.append(&[key("b")]).await;
        assert!(matches!(&refused, Err(JournalError::Io(why)) if why.contains("No space left")), "{refused:?}");
    }
    fs::remove_file(&next).unwrap();
    journal.append(&[key("c")]).await.unwrap();
    drop(journal);
    assert_eq!(open(dir.path(), Duration::ZERO).1, [key("a"), key("c")]);
}

#[tokio::test]
async fn a_file_whose_name_is_not_on_disk_takes_no_announce() {
    let dir = tempfile::tempdir().unwrap();
    let (mut writer, _) = super::open(dir.path(), "users", (Duration::from_secs(60), Duration::ZERO), 0).unwrap();
    let append = || Append { records: encode(&key("a")), count: 1, done: oneshot::channel().0 };
    // The name was changed, and the folder can't be synced.
    (writer.dir_synced, writer.files.young) = (false, dir.path().join("gone/users.journal"));
    writer.write(&[append()]).unwrap_err();
    writer.write(&[append()]).unwrap_err();
    assert_eq!(writer.young.next, 0);
    writer.files.young = dir.path().join("users.journal");
    writer.write(&[append()]).unwrap();
    assert!(writer.dir_synced && writer.young.next == 1);
}

#[tokio::test]
async fn its_files_are_their_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path(), Duration::ZERO);
    for text in ["a", "b", "c"] {
        journal.append(&[key(text)]).await.unwrap();
    }
    for file in ["users.journal", "users.journal.old"] {
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(dir.path().join(file)).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[tokio::test]
async fn what_can_not_be_read_to_its_end_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let life = Duration::from_secs(60);
    let (journal, _) = open(dir.path(), life);
    for text in ["first", "second"] {
        journal.append(&[key(text)]).await.unwrap();
    }
    drop(journal);
    let file = dir.path().join("users.journal");
    let whole = fs::read(&file).unwrap();
    let damaged = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let (_, replayed) = Journal::open(dir.path(), "users", life, Duration::ZERO).unwrap();
        (replayed.damaged, replayed.keys.len())
    };
    assert_eq!(damaged(&whole), (false, 2));
    assert_eq!(damaged(&whole[..whole.len() - 3]), (true, 1), "cut off");
    for (position, left) in [(0, 0), (3, 0), (6, 0), (whole.len() - 1, 1)] {
        let mut flipped = whole.clone();
        flipped[position] ^= 0x80;
        assert_eq!(damaged(&flipped), (true, left), "flipped at {position}");
    }
    assert_eq!(damaged(&[0xa5; 500]), (true, 0), "overwritten");
}

/// A journal of two files with three records each in them, and where each record of the younger ends.
fn rotated(dir: &Path) -> (Vec<u8>, Vec<u8>, Vec<usize>) {
    let (mut writer, _) = super::open(dir, "users", (Duration::from_secs(60), Duration::ZERO), 0).unwrap();
    let append = |text: &str| Append { records: encode(&key(text)), count: 1, done: oneshot::channel().0 };
    ["a", "b", "c"].iter().for_each(|text| writer.write(&[append(text)]).unwrap());
    writer.rotate().unwrap();
    let mut ends = vec![writer.length as usize];
    for text in ["d", "e", "f"] {
        writer.write(&[append(text)]).unwrap();
        ends.push(writer.length as usize);
    }
    (fs::read(&writer.files.old).unwrap(), fs::read(&writer.files.young).unwrap(), ends)
}

#[tokio::test]
async fn a_journal_cut_between_two_records_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (old, young, ends) = rotated(dir.path());
    let record = encode(&key("a")).len();
    let (old_place, young_place) = (dir.path().join("users.journal.old"), dir.path().join("users.journal"));
    let replayed = |old: Option<&[u8]>, young: Option<&[u8]>| {
        for (place, bytes) in [(&old_place, old), (&young_place, young)] {
            let _ = fs::remove_file(place);
            bytes.map_or(Ok(()), |bytes| fs::write(place, bytes)).unwrap();
        }
        let replayed = Journal::open(dir.path(), "users", Duration::from_secs(60), Duration::ZERO).unwrap().1;
        (replayed.damaged, replayed.keys.len())
    };
    assert_eq!(replayed(Some(&old), Some(&young)), (false, 6));
    for (kept, end) in ends[..3].iter().enumerate() {
        assert_eq!(replayed(Some(&old), Some(&young[..*end])), (true, 3 + kept), "the younger, cut after {kept}");
        assert_eq!(
            replayed(Some(&old[..old.len() - (3 - kept) * record]), Some(&young)),
            (true, kept + 3),
            "the older, cut after {kept}"
        );
        assert_eq!(replayed(Some(&old[..old.len() - (3 - kept) * record]), None), (true, kept), "and the younger gone");
    }
    for (old, young, kept) in [(&old[..], &[][..], 3), (&[], &young, 3), (&[], &[], 0)] {
        assert_eq!(replayed(Some(old), Some(young)), (true, kept), "cut to nothing");
    }
    assert_eq!(replayed(None, Some(&young)), (true, 3), "the older gone");
    assert_eq!(replayed(Some(&old), None), (true, 3), "the younger gone");
}

#[tokio::test]
async fn a_torn_claim_hides_no_other_and_claims_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (old, young, ends) = rotated(dir.path());
    let (extent, length) = (Extent { id: *young[4..].first_chunk().unwrap(), first: 3, next: 3 }, ends[0]);
    let claims = extent.file(3, Some(0), (Duration::from_secs(60), Duration::ZERO), 0, &[]).1 as usize;
    let half = (length - claims) / 2;
    let damaged = |young: &[u8]| {
        fs::write(dir.path().join("users.journal.old"), &old).unwrap();
        fs::write(dir.path().join("users.journal"), young).unwrap();
        Journal::open(dir.path(), "users", Duration::from_secs(60), Duration::ZERO).unwrap().1.damaged
    };
    // The machine crashed while a claim was written, or before: the records are all there.
    for torn in [&[claims][..], &[claims + half]] {
        let mut bytes = young.clone();
        torn.iter().for_each(|at| bytes[*at] ^= 1);
        assert!(!damaged(&bytes), "one claim is left");
        assert!(damaged(&bytes[..ends[1]]), "and notices that two records are gone");
    }
    let mut bytes = young.clone();
    (bytes[claims], bytes[claims + half]) = (!bytes[claims], !bytes[claims + half]);
    assert!(damaged(&bytes), "nothing says how much there was");
    // A claim in the other's place is none.
    let mut bytes = young;
    bytes.copy_within(claims..claims + half, claims + half);
    assert!(!damaged(&bytes));
}

#[tokio::test]
async fn a_journal_of_the_version_before_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = [&b"BGJ1"[..], &[7; 16], &5u64.to_le_bytes()].concat();
    bytes.extend_from_slice(&xxhash_rust::xxh3::xxh3_64(&bytes).to_le_bytes());
    ["a", "b"].iter().for_each(|text| bytes.extend(encode(&key(text))));
    fs::write(dir.path().join("users.journal"), bytes).unwrap();
    for _ in 0..2 {
        let replayed = Journal::open(dir.path(), "users", Duration::from_secs(60), Duration::ZERO).unwrap().1;
        assert_eq!((replayed.keys, replayed.damaged), (vec![key("a"), key("b")], false));
        assert_eq!(replayed.extent, Some(Extent { id: [7; 16], first: 5, next: 7 }));
    }
}
#[tokio::test]
async fn a_restart_with_a_shorter_window_is_told_the_longer_one() {
    let dir = tempfile::tempdir().unwrap();
    let (long, short, deadline) = (Duration::from_secs(60), Duration::from_secs(1), Duration::from_millis(300));
    let (journal, replayed) = Journal::open(dir.path(), "users", long, deadline).unwrap();
    assert_eq!(replayed.windows, None, "nothing was announced before");
    journal.append(&[key("a")]).await.unwrap();
    drop(journal);
    // However often it is restarted, for the key is written again each time.
    for _ in 0..2 {
        let (journal, replayed) = Journal::open(dir.path(), "users", short, deadline).unwrap();
        assert_eq!((replayed.keys, replayed.windows), (vec![key("a")], Some((long, deadline))));
        drop(journal);
    }
}

#[tokio::test]
async fn a_journal_of_another_meaning_is_told_until_its_keys_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let open =
        |meaning| Journal::open_of(dir.path(), "users", Duration::from_secs(60), Duration::ZERO, meaning).unwrap();
    let (journal, replayed) = open(7);
    assert!(!replayed.foreign, "nothing was announced before");
    journal.append(&[key("a")]).await.unwrap();
    drop(journal);
    assert!(!open(7).1.foreign);
    for _ in 0..2 {
        let replayed = open(8).1;
        assert!(
            replayed.foreign && !replayed.damaged && replayed.keys == [key("a")],
            "also by the start after the next"
        );
    }
}
