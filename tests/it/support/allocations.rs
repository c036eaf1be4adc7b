//! Counts what each thread allocates. The tests of this binary and the benchmarks run on this allocator.
#![allow(unsafe_code)] // By its trait: all is handed on to the allocator of the system.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Const and without a destructor: counting allocates nothing, and goes on while a thread ends.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Allocations of this thread so far.
pub fn allocations() -> u64 {
    COUNT.get()
}

/// Bytes that this thread has allocated less those that it has freed.
#[allow(dead_code)] // The benchmarks ask for it.
pub fn live_bytes() -> i64 {
    LIVE.get()
}

/// The most bytes that this thread has had beyond those at the beginning of `action`, and what that returned.
#[allow(dead_code)] // The benchmarks don't ask for it.
pub async fn peak_bytes<T>(action: impl Future<Output = T>) -> (i64, T) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = action.await;
    (PEAK.get() - before, result)
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocated(bytes: usize) {
    COUNT.set(COUNT.get() + 1);
    LIVE.set(LIVE.get() + bytes as i64);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

fn freed(bytes: usize) {
    LIVE.set(LIVE.get() - bytes as i64);
}

// SAFETY: each call is the same call of the system's allocator, and counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: the caller's promise, handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        freed(layout.size());
        allocated(size);
        // SAFETY: the caller's promise, handed on.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: the caller's promise, handed on.
        unsafe { System.dealloc(old, layout) }
    }
}
