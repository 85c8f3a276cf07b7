//! What a step costs, by its size, as measured.

use super::monotone::{interpolate, monotone};

/// The sizes that get a measurement each; sizes in between go to the nearest by ratio.
const BUCKETS: [usize; 20] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
];

/// Steps that a measurement remembers.
const MEMORY: f64 = 16.0;

/// A measurement that no step renewed for so many steps moves along with those that are renewed.
const FRESH: u64 = 64;

/// Three steps in a row that differ by more than this factor from what was measured are the new
/// measure: something has changed.
const JUMP: f64 = 1.25;

/// The measured time of a step by its size: rows of a verification, or sequences that a draft step
/// advances.
///
/// - A single step out of line changes nothing: what is averaged is the median of the last three.
/// - Between measured sizes it interpolates; beyond the largest it goes on as between the smallest
///   and the largest, and below the smallest it is constant.
/// - It never decreases with size: where measurements say so, they are averaged, those long ago
///   counting little.
/// - A measurement that has not been renewed for long moves by the ratio by which fresh ones moved,
///   so that a size out of use does not keep the speed of another hour.
#[derive(Debug, Clone, Default)]
pub struct StepCosts {
    points: Vec<Point>,
    /// Size and seconds, ascending in both. Derived from the points.
    curve: Vec<(f64, f64)>,
    steps: u64,
}

#[derive(Debug, Clone)]
struct Point {
    bucket: usize,
    size: f64,
    seconds: f64,
    /// The last three measured, the newest last.
    last: [f64; 3],
    count: u64,
    seen: u64,
}

impl StepCosts {
    /// Nothing measured.
    pub fn new() -> Self {
        Self::default()
    }

    /// A step of `size` took `seconds`. What cannot be is left out.
    pub fn observe(&mut self, size: usize, seconds: f64) {
        if size == 0 || !seconds.is_finite() || seconds < 0.0 {
            return;
        }
        self.steps += 1;
        let bucket = bucket(size);
        let steps = self.steps;
        match self
            .points
            .binary_search_by_key(&bucket, |point| point.bucket)
        {
            Ok(index) => {
                let before = self.points[index].seconds;
                self.points[index].observe(size, seconds, steps);
                self.carry_along(before, self.points[index].seconds);
            }
            Err(index) => {
                let point = Point::new(bucket, size, seconds, steps);
                self.points.insert(index, point);
            }
        }
        self.derive();
    }

    fn derive(&mut self) {
        let steps = self.steps;
        let measured = self
            .points
            .iter()
            .map(|point| (point.seconds, point.weight(steps)));
        let seconds = monotone(measured);
        let sizes = self.points.iter().map(|point| point.size);
        self.curve = sizes.zip(seconds).collect();
    }

    /// What a step of `size` takes, in seconds. `None` before anything was measured.
    pub fn seconds(&self, size: usize) -> Option<f64> {
        let size = size.max(1) as f64;
        let (first, last) = (self.curve.first()?, self.curve.last()?);
        if size <= last.0 {
            return interpolate(&self.curve, size);
        }
        let slope = if last.0 > first.0 {
            (last.1 - first.1) / (last.0 - first.0)
        } else {
            0.0
        };
        Some(last.1 + (size - last.0) * slope)
    }

    /// True where a size close to this one was measured lately, so that [`StepCosts::seconds`] is
    /// no guess.
    pub fn is_known(&self, size: usize) -> bool {
        let bucket = bucket(size.max(1));
        self.points
            .iter()
            .any(|point| point.bucket == bucket && point.is_known(self.steps))
    }

    /// Moves what is out of use by the ratio by which a measurement moved. Where several are in
    /// use, each has its share of that: else a change that all of them see would count for each.
    fn carry_along(&mut self, before: f64, now: f64) {
        if before <= 0.0 || now <= 0.0 {
            return;
        }
        let steps = self.steps;
        let fresh = self
            .points
            .iter()
            .filter(|point| point.is_fresh(steps))
            .count();
        let ratio = (now / before).powf(1.0 / fresh.max(1) as f64);
        for point in self
            .points
            .iter_mut()
            .filter(|point| !point.is_fresh(steps))
        {
            point.seconds *= ratio;
        }
    }
}

impl Point {
    fn new(bucket: usize, size: usize, seconds: f64, steps: u64) -> Self {
        Self {
            bucket,
            size: size as f64,
            seconds,
            last: [seconds; 3],
            count: 1,
            seen: steps,
        }
    }

    fn observe(&mut self, size: usize, seconds: f64, steps: u64) {
        self.count += 1;
        self.last = [self.last[1], self.last[2], seconds];
        self.seen = steps;
        let weight = 1.0 / MEMORY.min(self.count as f64);
        self.size += (size as f64 - self.size) * weight;
        let [low, median, high] = sorted(self.last);
        let changed = low > self.seconds * JUMP || high * JUMP < self.seconds;
        self.seconds = match self.count {
            // The first of all may be the one out of line, and a step is rarely too short.
            2 => self.last[1].min(seconds),
            3 => median,
            _ if changed => median,
            _ => self.seconds + (median - self.seconds) * weight,
        };
    }

    fn is_fresh(&self, steps: u64) -> bool {
        steps - self.seen < FRESH
    }

    fn is_known(&self, steps: u64) -> bool {
        self.count >= 2 && steps - self.seen < 4 * FRESH
    }

    /// How much it counts against others that contradict it.
    fn weight(&self, steps: u64) -> f64 {
        let age = (steps - self.seen) as f64;
        MEMORY.min(self.count as f64) * 0.5_f64.powf(age / FRESH as f64).max(1e-6)
    }
}

fn bucket(size: usize) -> usize {
    let ratio = |bucket: usize| (bucket as f64 / size as f64).ln().abs();
    let nearest = BUCKETS
        .iter()
        .copied()
        .min_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
    nearest.unwrap_or(1)
}

fn sorted(mut values: [f64; 3]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    values
}
