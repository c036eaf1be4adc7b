//! Group commit: the first append leaves at once, those that arrive while it is under way leave together.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::entry::{Delta, EntryId, LogEntryKind};
use super::log::{DeltaLog, LogError};
use crate::redis::LogIdentity;

/// Appends that may wait. Further callers wait for room, within their own deadline.
const QUEUE: usize = 1024;
/// Hashes in one entry, which readers fetch as a whole.
const HASHES_AN_ENTRY: usize = 256;
/// Hashes that leave together.
const HASHES_A_GROUP: usize = 16_384;

type Committed = Result<(LogIdentity, EntryId), LogError>;

/// The writing end of one keyspace's log. Cheap to clone; the task behind it ends with the last clone.
#[derive(Debug, Clone)]
pub struct Committer(mpsc::Sender<Request>);

#[derive(Debug)]
struct Request {
    delta: Delta,
    epoch: Option<u64>,
    done: oneshot::Sender<Committed>,
}

impl Committer {
    /// Must be called within a Tokio runtime.
    #[must_use]
    pub fn new(log: Arc<dyn DeltaLog>) -> Self {
        let (sender, requests) = mpsc::channel(QUEUE);
        tokio::spawn(commit(log, requests));
        Self(sender)
    }

    /// Appends and returns a place at or behind that of the entry. Dropping the future does not cancel the append.
    ///
    /// # Errors
    /// [`LogError`].
    pub async fn append(&self, delta: Delta, epoch: Option<u64>) -> Committed {
        let gone = || LogError::Unavailable("the process is stopping".into());
        let (done, answer) = oneshot::channel();
        self.0.send(Request { delta, epoch, done }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

async fn commit(log: Arc<dyn DeltaLog>, mut requests: mpsc::Receiver<Request>) {
    let mut held = None;
    loop {
        let Some(first) = (match held.take() {
            Some(request) => Some(request),
            None => requests.recv().await,
        }) else {
            return;
        };
        let epoch = first.epoch;
        let mut group = Group::default();
        group.take(first);
        while group.hashes < HASHES_A_GROUP
            && let Ok(next) = requests.try_recv()
        {
            if next.epoch != epoch {
                // Its markers went over another connection, so it must use that one too.
                held = Some(next);
                break;
            }
            group.take(next);
        }
        let mut committed = log.append(&group.deltas, epoch).await;
        if matches!(committed, Err(LogError::NotAdmitted)) {
            group.refuse_announces();
            if group.deltas.is_empty() {
                continue;
            }
            committed = log.append(&group.deltas, epoch).await;
        }
        for (_, done) in group.waiting {
            // Callers that left have their error already.
            let _ = done.send(committed.clone());
        }
    }
}

/// What leaves together.
#[derive(Default)]
struct Group {
    deltas: Vec<Delta>,
    hashes: usize,
    waiting: Vec<(LogEntryKind, oneshot::Sender<Committed>)>,
}

impl Group {
    /// The log has appended nothing, because this instance may not announce yet. A drop needs no admission.
    fn refuse_announces(&mut self) {
        self.deltas.retain(|delta| delta.kind != LogEntryKind::Announce);
        for (_, done) in self.waiting.extract_if(.., |(kind, _)| *kind == LogEntryKind::Announce) {
            let _ = done.send(Err(LogError::NotAdmitted));
        }
    }

    fn take(&mut self, request: Request) {
        let Delta { kind, secret, terms, hashes } = request.delta;
        self.hashes += hashes.len();
        self.waiting.push((kind, request.done));
        if kind == LogEntryKind::Gap {
            return self.deltas.push(Delta { kind, secret, terms, hashes });
        }
        for hash in hashes {
            match self.deltas.last_mut() {
                Some(last)
                    if (last.kind, last.secret, last.terms) == (kind, secret, terms)
                        && last.hashes.len() < HASHES_AN_ENTRY =>
                {
                    last.hashes.push(hash);
                }
                _ => self.deltas.push(Delta { kind, secret, terms, hashes: vec![hash] }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;
    use parking_lot::Mutex;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::config::EnforcementSetting;
    use crate::fleet::{LogPage, Switch};
    use crate::key::KeyHash;

    /// Records what is appended. Each append waits for a permit.
    struct Slow {
        appended: Mutex<Vec<(Vec<Delta>, Option<u64>)>>,
        begun: AtomicUsize,
        permits: Semaphore,
        /// Of the instance that appends.
        is_admitted: bool,
    }

    impl Slow {
        fn with_permits(permits: usize) -> Arc<Self> {
            let (appended, begun) = (Mutex::default(), AtomicUsize::new(0));
            Arc::new(Self { appended, begun, permits: Semaphore::new(permits), is_admitted: true })
        }
    }

    #[async_trait]
    impl DeltaLog for Slow {
        fn retention(&self) -> Duration {
            Duration::MAX
        }

        async fn append(&self, deltas: &[Delta], epoch: Option<u64>) -> Committed {
            self.begun.fetch_add(1, Ordering::SeqCst);
            self.permits.acquire().await.unwrap().forget();
            if !self.is_admitted && deltas.iter().any(|delta| delta.kind == LogEntryKind::Announce) {
                return Err(LogError::NotAdmitted);
            }
            let mut appended = self.appended.lock();
            appended.push((deltas.to_vec(), epoch));
            Ok((LogIdentity([0; 16]), EntryId::at(appended.len() as u64)))
        }

        async fn read(&self, _: EntryId, _: Option<&str>) -> Result<LogPage, LogError> {
            Err(LogError::Timeout)
        }

        async fn switch(&self, _: Option<EnforcementSetting>, _: u64) -> Result<Switch, LogError> {
            Err(LogError::Timeout)
        }

        async fn restore_switch(&self, _: Switch) -> Result<(), LogError> {
            Err(LogError::Timeout)
        }
    }

    fn hash(n: u128) -> KeyHash {
        KeyHash::from_bits(n)
    }

    #[tokio::test]
    async fn what_comes_while_an_append_is_under_way_leaves_together() {
        let log = Slow::with_permits(0);
        let committer = Committer::new(log.clone());
        let send = |kind, n, epoch: u64| {
            let committer = committer.clone();
            tokio::spawn(async move {
                committer.append(Delta { kind, secret: 1, terms: None, hashes: vec![hash(n)] }, Some(epoch)).await
            })
        };
        let first = send(LogEntryKind::Announce, 0, 1);
        while log.begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let mut later = Vec::new();
        for (n, (kind, epoch)) in (1..).zip([
            (LogEntryKind::Announce, 1),
            (LogEntryKind::Announce, 1),
            (LogEntryKind::Drop, 1),
            (LogEntryKind::Announce, 2),
        ]) {
            later.push(send(kind, n, epoch));
            while committer.0.capacity() != QUEUE - n as usize {
                tokio::task::yield_now().await;
            }
        }
        log.permits.add_permits(3);
        assert_eq!(first.await.unwrap().unwrap().1, EntryId::at(1));
        let places: Vec<_> = futures_util::future::join_all(later)
            .await
            .into_iter()
            .map(|place| place.unwrap().unwrap().1.millis)
            .collect();
        assert_eq!(places, [2, 2, 2, 3], "another connection's append goes by itself");
        let delta = |kind, hashes: &[u128]| Delta {
            kind,
            secret: 1,
            terms: None,
            hashes: hashes.iter().map(|n| hash(*n)).collect(),
        };
        let expected = [
            (vec![delta(LogEntryKind::Announce, &[0])], Some(1)),
            (vec![delta(LogEntryKind::Announce, &[1, 2]), delta(LogEntryKind::Drop, &[3])], Some(1)),
            (vec![delta(LogEntryKind::Announce, &[4])], Some(2)),
        ];
        assert_eq!(*log.appended.lock(), expected);
    }

    #[tokio::test]
    async fn large_announces_become_several_entries() {
        let log = Slow::with_permits(10);
        let committer = Committer::new(log.clone());
        committer
            .append(
                Delta { kind: LogEntryKind::Announce, secret: 1, terms: None, hashes: (0..600).map(hash).collect() },
                None,
            )
            .await
            .unwrap();
        let sizes: Vec<usize> = log.appended.lock()[0].0.iter().map(|delta| delta.hashes.len()).collect();
        assert_eq!(sizes, [256, 256, 88]);
    }

    #[tokio::test]
    async fn drops_are_appended_beside_announces_that_are_not_admitted() {
        let mut log = Slow::with_permits(10);
        Arc::get_mut(&mut log).unwrap().is_admitted = false;
        let committer = Committer::new(log.clone());
        let send = |kind, n| committer.append(Delta { kind, secret: 1, terms: None, hashes: vec![hash(n)] }, Some(1));
        let (announce, drop) = (LogEntryKind::Announce, LogEntryKind::Drop);
        let (before, first, after, second) =
            tokio::join!(send(announce, 0), send(drop, 1), send(announce, 2), send(drop, 3));
        assert_eq!((&before, &after), (&Err(LogError::NotAdmitted), &Err(LogError::NotAdmitted)));
        assert_eq!((first.unwrap().1, second.unwrap().1), (EntryId::at(1), EntryId::at(1)));
        assert_eq!(log.begun.load(Ordering::SeqCst), 2, "all together, then the drops alone");
        let dropped = [1, 3].map(|n| Delta { kind: drop, secret: 1, terms: None, hashes: vec![hash(n)] });
        assert_eq!(*log.appended.lock(), [(dropped.to_vec(), Some(1))]);
        send(announce, 4).await.unwrap_err();
        assert_eq!(log.begun.load(Ordering::SeqCst), 3, "nothing is appended in their place");
    }
}
