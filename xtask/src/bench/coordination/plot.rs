//! Drawings of what was measured.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

const PANEL: (u32, u32) = (900, 520);

type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;

#[derive(Debug, Deserialize)]
struct Sweep {
    points: Vec<SweepPoint>,
}

#[derive(Debug, Deserialize)]
struct SweepPoint {
    times: Times,
    plain: Way,
    plain_closed_form: f64,
    synchronous: Way,
    synchronous_closed_form: f64,
    default: Way,
    hidden_closed_form: f64,
}

#[derive(Debug, Deserialize)]
struct Times {
    rtt_ms: f64,
}

#[derive(Debug, Deserialize)]
struct Way {
    rate: f64,
}

#[derive(Debug, Deserialize)]
struct Load {
    points: Vec<LoadPoint>,
}

#[derive(Debug, Deserialize)]
struct LoadPoint {
    agreement: f64,
    streams: u32,
    plain: Vec<f64>,
    default: Vec<f64>,
}

/// What is drawn of one way of decoding.
struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
    color: RGBColor,
    /// Circles where it was measured, a line where it was computed.
    measured: bool,
}

/// Draws what there is of the sweep and of the load into `path`, as SVG; nothing where there is
/// neither.
pub(super) fn draw(figures: &Map<String, Value>, path: &Path) -> Result<()> {
    let sweep: Option<Sweep> = section(figures, "sweep")?;
    let load: Option<Load> = section(figures, "load")?;
    let panels = u32::from(sweep.is_some()) + u32::from(load.is_some());
    if panels == 0 {
        return Ok(());
    }
    let area = SVGBackend::new(path, (PANEL.0, PANEL.1 * panels)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut areas = area.split_evenly((panels as usize, 1)).into_iter();
    if let (Some(sweep), Some(area)) = (sweep, areas.by_ref().next()) {
        sweep.draw(&area)?;
    }
    if let (Some(load), Some(area)) = (load, areas.next()) {
        load.draw(&area)?;
    }
    area.present()?;
    Ok(())
}

fn section<T: DeserializeOwned>(figures: &Map<String, Value>, name: &str) -> Result<Option<T>> {
    let value = figures.get(name).cloned();
    Ok(value.map(serde_json::from_value).transpose()?)
}

impl Sweep {
    fn draw(&self, area: &Panel<'_>) -> Result<()> {
        let curve = |name: &str, color, measured, rate: &dyn Fn(&SweepPoint) -> f64| Curve {
            name: name.to_owned(),
            points: self
                .points
                .iter()
                .map(|it| (it.times.rtt_ms, rate(it)))
                .collect(),
            color,
            measured,
        };
        let curves = [
            curve("plain, closed form", BLACK, false, &|it| {
                it.plain_closed_form
            }),
            curve("plain", BLACK, true, &|it| it.plain.rate),
            curve("synchronous, closed form", BLUE, false, &|it| {
                it.synchronous_closed_form
            }),
            curve("synchronous", BLUE, true, &|it| it.synchronous.rate),
            curve("drafts hidden, closed form", RED, false, &|it| {
                it.hidden_closed_form
            }),
            curve("default", RED, true, &|it| it.default.rate),
        ];
        chart(
            area,
            "One request: tokens per second by the round trip to the draft worker",
            ["round trip in ms", "tokens/s"],
            &curves,
        )
    }
}

impl Load {
    fn draw(&self, area: &Panel<'_>) -> Result<()> {
        let mut gains: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for point in &self.points {
            let gain = point.default.iter().sum::<f64>() / point.plain.iter().sum::<f64>();
            let name = format!("agreement {}", point.agreement);
            let doublings = f64::from(point.streams).log2();
            gains.entry(name).or_default().push((doublings, gain));
        }
        let curves: Vec<_> = gains
            .into_iter()
            .zip([BLACK, BLUE, RED].into_iter().cycle())
            .flat_map(|((name, points), color)| {
                [true, false].map(|measured| Curve {
                    name: if measured {
                        name.clone()
                    } else {
                        String::new()
                    },
                    points: points.clone(),
                    color,
                    measured,
                })
            })
            .collect();
        chart(
            area,
            "Many requests: gain of the default over plain decoding",
            ["streams, as a power of 2", "gain"],
            &curves,
        )
    }
}

fn chart(area: &Panel<'_>, title: &str, axes: [&str; 2], curves: &[Curve]) -> Result<()> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let right = points().fold(1.0, |most: f64, (x, _)| most.max(*x));
    let top = points().fold(0.0, |most: f64, (_, y)| most.max(*y)) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.02 * right..1.02 * right, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc(axes[0])
        .y_desc(axes[1])
        .draw()?;
    for curve in curves {
        let (color, points) = (curve.color, &curve.points);
        let drawn = if curve.measured {
            let circles = points.iter().map(|at| Circle::new(*at, 4, color.filled()));
            chart.draw_series(circles)?
        } else {
            chart.draw_series(LineSeries::new(points.iter().copied(), color))?
        };
        if !curve.name.is_empty() {
            let measured = curve.measured;
            drawn.label(curve.name.as_str()).legend(move |(x, y)| {
                if measured {
                    Circle::new((x + 9, y), 4, color.filled()).into_dyn()
                } else {
                    PathElement::new([(x, y), (x + 18, y)], color).into_dyn()
                }
            });
        }
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figures() -> Map<String, Value> {
        let way = json!({ "rate": 100.0 });
        let sweep = json!({ "points": [{
            "times": { "rtt_ms": 5.0 }, "plain": way, "plain_closed_form": 58.0,
            "synchronous": way, "synchronous_closed_form": 110.0,
            "default": way, "hidden_closed_form": 180.0,
        }]});
        let load = json!({ "points": [
            { "agreement": 0.5, "streams": 64, "plain": [10.0], "default": [20.0] },
        ]});
        Map::from_iter([("sweep".to_owned(), sweep), ("load".to_owned(), load)])
    }

    #[test]
    fn what_was_measured_is_drawn_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drawing.svg");
        draw(&figures(), &path).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for name in ["synchronous, closed form", "default", "agreement 0.5"] {
            assert!(svg.contains(name), "{name}");
        }
        // A circle for each point and one in each legend.
        assert_eq!(svg.matches("<circle").count(), 2 * (3 + 1));
    }

    #[test]
    fn nothing_is_drawn_of_sections_that_were_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drawing.svg");
        draw(&Map::new(), &path).unwrap();
        assert!(!path.exists());
    }
}
