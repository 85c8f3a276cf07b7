//! Loops spread over the cores, on the pool that the matrix products run on: a second pool would
//! compete with the first one's spinning threads.

use candle_core::utils::barrier_pool;

/// Calls `work(index, piece)` for each piece of `piece_len` of `values`, in any order.
///
/// # Panics
/// If `values` does not divide into pieces.
pub(crate) fn for_each_piece<T, F>(values: &mut [T], piece_len: usize, work: F)
where
    T: Send,
    F: Fn(usize, &mut [T]) + Sync,
{
    assert!(values.len().is_multiple_of(piece_len), "whole pieces");
    let count = values.len() / piece_len;
    if count == 1 {
        return work(0, values);
    }
    let base = Base(values.as_mut_ptr());
    barrier_pool().execute_chunked(count, |range| {
        for index in range {
            // SAFETY: the pool hands out each index below `count` once, so the pieces do not
            // overlap, and it returns only when all are done, while `values` is still borrowed.
            let piece = unsafe {
                std::slice::from_raw_parts_mut(base.get().add(index * piece_len), piece_len)
            };
            work(index, piece);
        }
    });
}

struct Base<T>(*mut T);

impl<T> Base<T> {
    // A method, so that closures capture the whole struct with its `Sync`.
    fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: only `for_each_piece` uses it, and gives each thread pieces of its own.
unsafe impl<T: Send> Sync for Base<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_visited_once() {
        let mut values = vec![0.0; 3 * 1000];
        for_each_piece(&mut values, 3, |index, piece| {
            for value in piece {
                *value += index as f32 + 1.0;
            }
        });
        for (index, piece) in values.chunks(3).enumerate() {
            assert_eq!(piece, [index as f32 + 1.0; 3]);
        }
    }
}
