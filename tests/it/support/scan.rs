//! A scan read to its end.

use bloomguard::key::{Key, KeyBatch, KeyForm};
use bloomguard::source::{BATCH_KEYS, KeySource, SourceError};
use tokio::sync::mpsc;

/// All keys, or why there are none.
pub async fn scan(source: &dyn KeySource, form: KeyForm) -> Result<Vec<Key>, SourceError> {
    let (sender, mut receiver) = mpsc::channel::<KeyBatch>(2);
    let collected = async {
        let mut keys = Vec::new();
        while let Some(batch) = receiver.recv().await {
            assert!((1..=BATCH_KEYS).contains(&batch.len()));
            keys.extend(batch);
        }
        keys
    };
    let (sent, keys) = tokio::join!(source.scan(form, sender), collected);
    let sent = sent?;
    assert_eq!(sent, keys.len() as u64);
    Ok(keys)
}

/// All keys, sorted and escaped.
pub async fn sorted(source: &dyn KeySource, form: KeyForm) -> Vec<String> {
    let mut keys: Vec<_> =
        scan(source, form).await.unwrap().iter().map(|key| key.as_bytes().escape_ascii().to_string()).collect();
    keys.sort();
    keys
}

/// As [`sorted`], each key once, for sources that may list one twice.
pub async fn distinct(source: &dyn KeySource, form: KeyForm) -> Vec<String> {
    let mut keys = sorted(source, form).await;
    keys.dedup();
    keys
}
