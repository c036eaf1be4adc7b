//! Any bytes are rejected as an entry of the delta log, or decode to an entry that encodes to the same bytes.

pub fn run(data: &[u8]) {
    if let Some(again) = bloomguard::fleet::try_entry(data) {
        assert_eq!(again, data);
    }
}
