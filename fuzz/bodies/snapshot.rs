//! Any bytes are read or rejected as a snapshot, and make a filter or none.

use bloomguard::filter::snapshot::{decode, seal};

pub fn run(data: &[u8]) {
    read(data);
    // With a valid checksum too, which no mutation finds.
    read(&seal(data));
}

fn read(bytes: &[u8]) {
    if let Ok(snapshot) = decode(bytes, bytes.len() as u64).and_then(|opened| opened.load())
        && let Ok(filter) = snapshot.into_filter(Box::new(|_| Some(Box::new(()))))
    {
        filter.insert(1);
        assert!(filter.contains(1));
    }
}
