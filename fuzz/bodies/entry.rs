//! Whatever the bytes, an entry of the delta log is refused, or is the one that writes the same bytes.

pub fn run(data: &[u8]) {
    if let Some(again) = bloomguard::fleet::try_entry(data) {
        assert_eq!(again, data);
    }
}
