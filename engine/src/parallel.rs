//! Loops spread over the cores, on the pool that the matrix products run on: a second pool would
//! compete with the first one's spinning threads.

use candle_core::utils::barrier_pool;

/// Threads that compute on the processor, the one that asks for it among them: what
/// `CANDLE_NUM_THREADS` or `RAYON_NUM_THREADS` state, or else all cores.
pub fn threads() -> usize {
    barrier_pool().n_workers() + 1
}

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

/// Makes `rows` rows of `width` numbers out of pieces of at most `R` rows and `N` columns.
/// `work(first, index, piece)` fills the piece from row `first` on whose columns are the `index`th
/// `N`, an entry per row; pieces come in any order. What is over in the last columns is dropped.
pub(crate) fn from_pieces<const N: usize, const R: usize, F>(
    rows: usize,
    width: usize,
    work: F,
) -> Vec<f32>
where
    F: Fn(usize, usize, &mut [[f32; N]]) + Sync,
{
    let mut values: Vec<f32> = Vec::with_capacity(rows * width);
    let base = Base(values.as_mut_ptr());
    for first in (0..rows).step_by(R) {
        barrier_pool().execute_chunked(width.div_ceil(N), |range| {
            let mut piece = [[0.0; N]; R];
            let piece = &mut piece[..R.min(rows - first)];
            for index in range {
                work(first, index, piece);
                let start = index * N;
                for (row, columns) in piece.iter().enumerate() {
                    // SAFETY: these columns are within the row, and the row within the capacity.
                    // The pool hands out each index once, so nobody else writes there, and it
                    // returns only when all is done, while `values` is still there.
                    unsafe {
                        let place = base.get().add((first + row) * width + start);
                        if width - start >= N {
                            place.cast::<[f32; N]>().write(*columns);
                        } else {
                            place.copy_from_nonoverlapping(columns.as_ptr(), width - start);
                        }
                    }
                }
            }
        });
    }
    // SAFETY: every column of every row has been written.
    unsafe { values.set_len(rows * width) };
    values
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
    fn all_pieces_are_put_in_their_place_and_what_is_over_is_dropped() {
        for (rows, width) in [(0, 64), (1, 64), (3, 64), (4, 61), (9, 35), (8, 5)] {
            let values = from_pieces::<16, 4, _>(rows, width, |first, index, piece| {
                assert_eq!(piece.len(), 4.min(rows - first));
                for (row, columns) in piece.iter_mut().enumerate() {
                    for (i, value) in columns.iter_mut().enumerate() {
                        *value = ((first + row) * 1000 + index * 16 + i) as f32;
                    }
                }
            });
            assert_eq!(values.len(), rows * width);
            for (row, values) in values.chunks(width).enumerate() {
                let expected = (0..width).map(|i| (row * 1000 + i) as f32);
                assert!(values.iter().copied().eq(expected), "{rows}x{width}");
            }
        }
    }
}
