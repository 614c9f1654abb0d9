//! Measures the memory that a function takes. Unit tests use the allocator in this module.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// The bytes that this thread has allocated and not freed.
    static USED: Cell<isize> = const { Cell::new(0) };
    /// The largest value of `USED`.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts what each thread allocates.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's allocator does all the work. Counting needs no memory: the cells are made at
// compile time, and nothing has to be dropped.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn count(bytes: isize) {
    USED.set(USED.get() + bytes);
    PEAK.set(PEAK.get().max(USED.get()));
}

/// Returns the result of `work`, and by how many bytes the memory of this thread grew at its peak.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = USED.get();
    PEAK.set(before);
    let result = work();
    (result, (PEAK.get() - before).unsigned_abs() as u64)
}
