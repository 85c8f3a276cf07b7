//! Measurements of something that cannot decrease.

/// The non-decreasing sequence nearest to `values`, each a value and its weight, by weighted
/// squares: neighbours that contradict it are pooled (the pool-adjacent-violators algorithm).
pub(super) fn monotone(values: impl IntoIterator<Item = (f64, f64)>) -> Vec<f64> {
    let mut pools: Vec<Pool> = Vec::new();
    for (value, weight) in values {
        let mut pool = Pool {
            value,
            weight,
            count: 1,
        };
        while let Some(before) = pools.pop_if(|before| before.value > pool.value) {
            let weight = before.weight + pool.weight;
            pool.value = (before.value * before.weight + pool.value * pool.weight) / weight;
            pool.weight = weight;
            pool.count += before.count;
        }
        pools.push(pool);
    }
    let values = pools
        .iter()
        .flat_map(|pool| std::iter::repeat_n(pool.value, pool.count));
    values.collect()
}

struct Pool {
    value: f64,
    weight: f64,
    count: usize,
}

/// The value at `x` of the line through points that ascend in both; constant beyond its ends.
pub(super) fn interpolate(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = points.partition_point(|point| point.0 < x);
    let before = after.checked_sub(1).map(|index| points[index]);
    match (before, points.get(after)) {
        (None, next) => next.map(|next| next.1),
        (Some(before), None) => Some(before.1),
        (Some(before), Some(next)) => {
            let part = (x - before.0) / (next.0 - before.0);
            // Rounding must not make it exceed where it goes to.
            Some((before.1 + (next.1 - before.1) * part).min(next.1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_the_wrong_order_are_averaged_by_weight() {
        let equal = monotone([(1.0, 1.0), (3.0, 1.0), (2.0, 1.0), (4.0, 1.0)]);
        assert_eq!(equal, [1.0, 2.5, 2.5, 4.0]);
        let heavy = monotone([(3.0, 1.0), (1.0, 3.0)]);
        assert_eq!(heavy, [1.5, 1.5]);
        let chain = monotone([(3.0, 1.0), (2.0, 1.0), (1.0, 1.0)]);
        assert_eq!(chain, [2.0, 2.0, 2.0]);
        assert!(monotone([]).is_empty());
    }

    #[test]
    fn lines_are_constant_beyond_their_ends() {
        let points = [(1.0, 10.0), (3.0, 20.0)];
        for (x, y) in [
            (0.0, 10.0),
            (1.0, 10.0),
            (2.0, 15.0),
            (3.0, 20.0),
            (9.0, 20.0),
        ] {
            assert_eq!(interpolate(&points, x), Some(y));
        }
        assert_eq!(interpolate(&[], 1.0), None);
    }
}
