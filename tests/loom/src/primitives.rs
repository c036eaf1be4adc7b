//! Stand-ins for `parking_lot` and `arc_swap` that loom schedules.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};

/// Replaces `parking_lot::Mutex`.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

pub type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// Replaces `arc_swap::ArcSwap`, with no stronger guarantees than documented: a load sees everything before the store
/// that it reads from. Nothing is freed before the end, so pointers can be numbers.
#[derive(Debug)]
pub struct ArcSwap<T> {
    /// Not loom's mutex: it only stores the values behind the pointers, and must order nothing.
    stored: std::sync::Mutex<Vec<Arc<T>>>,
    current: AtomicUsize,
}

impl<T: Default> Default for ArcSwap<T> {
    fn default() -> Self {
        Self { stored: std::sync::Mutex::new(vec![Arc::default()]), current: AtomicUsize::new(0) }
    }
}

impl<T> ArcSwap<T> {
    pub fn load(&self) -> Arc<T> {
        let current = self.current.load(Ordering::Acquire);
        Arc::clone(&self.stored.lock().unwrap()[current])
    }

    pub fn store(&self, value: Arc<T>) {
        let number = {
            let mut stored = self.stored.lock().unwrap();
            stored.push(value);
            stored.len() - 1
        };
        self.current.store(number, Ordering::Release);
    }
}
