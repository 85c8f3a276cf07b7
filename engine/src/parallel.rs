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

/// Calls `work(index, columns)` for each `N` columns of the rows in `values`, which are `width`
/// long and at most `R`, in any order; puts what it leaves in `columns`, an entry per row, in
/// their place. What is over in the last ones is dropped.
///
/// # Panics
/// If `values` does not divide into rows, or if there are more than `R`.
pub(crate) fn for_each_columns<const N: usize, const R: usize, F>(
    values: &mut [f32],
    width: usize,
    work: F,
) where
    F: Fn(usize, &mut [[f32; N]]) + Sync,
{
    assert!(values.len().is_multiple_of(width), "whole rows");
    let rows = values.len() / width;
    let base = Base(values.as_mut_ptr());
    barrier_pool().execute_chunked(width.div_ceil(N), |range| {
        let mut columns = [[0.0; N]; R];
        let columns = &mut columns[..rows];
        for index in range {
            work(index, columns);
            let start = index * N;
            let count = N.min(width - start);
            for (row, columns) in columns.iter().enumerate() {
                // SAFETY: these columns are within the row. The pool hands out each index once,
                // so no columns overlap, and it returns only when all are done, while `values` is
                // still borrowed.
                let place = unsafe {
                    std::slice::from_raw_parts_mut(base.get().add(row * width + start), count)
                };
                place.copy_from_slice(&columns[..count]);
            }
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

// SAFETY: only the functions here use it, and give each thread places of its own.
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
    #[test]
    fn all_columns_are_filled_and_what_is_over_is_dropped() {
        for (rows, width) in [(1, 64), (3, 64), (2, 61), (4, 5)] {
            let mut values = vec![f32::NAN; rows * width];
            for_each_columns::<16, 4, _>(&mut values, width, |index, columns| {
                assert_eq!(columns.len(), rows);
                for (row, columns) in columns.iter_mut().enumerate() {
                    for (i, value) in columns.iter_mut().enumerate() {
                        *value = (row * 1000 + index * 16 + i) as f32;
                    }
                }
            });
            for (row, values) in values.chunks(width).enumerate() {
                let expected = (0..width).map(|i| (row * 1000 + i) as f32);
                assert!(values.iter().copied().eq(expected), "{rows}x{width}");
            }
        }
    }
}
