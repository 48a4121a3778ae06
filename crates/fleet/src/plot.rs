//! Figures as SVG: bars by group, and lines over a logarithmic axis, in the style of the published papers.
//!
//! Written by hand: axes, bars, lines and words suffice, and text in SVG takes no font here. Readers with
//! colour blindness can tell the colours apart (Okabe and Ito), and each line has a mark of its own besides.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 96.0;
const COLOURS: [&str; 7] = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#333333"];
/// Approximate number of steps of an axis.
const STEPS: f64 = 5.0;

/// A group of bars: one for each series, `None` if it was not measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub name: String,
    pub values: Vec<Option<f64>>,
}

/// A line of points (x, y).
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Words of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Words<'a> {
    pub title: &'a str,
    /// Under the horizontal axis.
    pub below: &'a str,
    /// Beside the vertical axis, with the unit.
    pub beside: &'a str,
}

/// Bars in groups, a colour for each series.
pub fn bars(words: &Words<'_>, series: &[String], groups: &[Group]) -> String {
    let values = groups.iter().flat_map(|group| group.values.iter().flatten().copied());
    let top = axis_top(values.fold(0.0, f64::max));
    let mut svg = frame(words, top);
    let wide = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let bar = (wide * 0.8) / series.len().max(1) as f64;
    for (number, group) in groups.iter().enumerate() {
        let from = LEFT + wide * number as f64 + wide * 0.1;
        for (at, value) in group.values.iter().enumerate() {
            let x = from + bar * at as f64;
            let Some(value) = value.filter(|value| value.is_finite()) else {
                label(&mut svg, x + bar / 2.0, y_of(0.0, top) - 4.0, "middle", "n/a");
                continue;
            };
            let y = y_of(value, top);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                bar * 0.92,
                y_of(0.0, top) - y,
                colour(at)
            );
            label(&mut svg, x + bar / 2.0, y - 4.0, "middle", &short(value));
        }
        label(&mut svg, from + wide * 0.4, HEIGHT - BOTTOM + 18.0, "middle", &group.name);
    }
    legend(&mut svg, series);
    svg + "</svg>\n"
}

/// Lines; the horizontal axis is logarithmic to the base 2 if `is_log`, and its ticks stand at the points.
pub fn lines(words: &Words<'_>, is_log: bool, show_x: fn(f64) -> String, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let finite = || points().filter(|(x, y)| x.is_finite() && y.is_finite() && (!is_log || *x > 0.0));
    let top = axis_top(finite().map(|point| point.1).fold(0.0, f64::max));
    let scaled = |x: f64| if is_log { x.log2() } else { x };
    let low = finite().map(|point| scaled(point.0)).fold(f64::INFINITY, f64::min);
    let high = finite().map(|point| scaled(point.0)).fold(f64::NEG_INFINITY, f64::max);
    let x_of = |x: f64| {
        let share = if high > low { (scaled(x) - low) / (high - low) } else { 0.5 };
        LEFT + 14.0 + share * (WIDTH - LEFT - RIGHT - 28.0)
    };
    let mut svg = frame(words, top);
    let mut ticks: Vec<f64> = finite().map(|point| point.0).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    // More would run into each other.
    let every = ticks.len().div_ceil(12).max(1);
    for x in ticks.into_iter().step_by(every) {
        label(&mut svg, x_of(x), HEIGHT - BOTTOM + 18.0, "middle", &show_x(x));
    }
    for (number, line) in lines.iter().enumerate() {
        let drawn =
            line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite() && (!is_log || *x > 0.0));
        let places: Vec<(f64, f64)> = drawn.map(|(x, y)| (x_of(*x), y_of(*y, top))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            path.join(" "),
            colour(number)
        );
        // Marks of many points would hide the line.
        if places.len() <= 40 {
            places.iter().for_each(|(x, y)| mark(&mut svg, number, *x, *y));
        }
    }
    let names: Vec<String> = lines.iter().map(|line| line.name.clone()).collect();
    legend(&mut svg, &names);
    svg + "</svg>\n"
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

fn y_of(value: f64, top: f64) -> f64 {
    let share = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

/// A round number at or above the largest value: 1, 2, 2.5 or 5 times a power of ten, for each of the steps.
fn axis_top(largest: f64) -> f64 {
    if !(largest > 0.0 && largest.is_finite()) {
        return 1.0;
    }
    let step = largest / STEPS;
    let power = 10_f64.powf(step.log10().floor());
    let round = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * power >= step).unwrap_or(10.0);
    let steps = (largest / (round * power)).ceil();
    steps * round * power
}

/// White ground, title, vertical axis with its grid, and the words of both axes.
fn frame(words: &Words<'_>, top: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n<title>{}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n",
        escaped(words.title)
    );
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"22\" text-anchor=\"middle\" font-size=\"15\" fill=\"#111111\">{}</text>",
        WIDTH / 2.0,
        escaped(words.title)
    );
    for step in 0..=STEPS as u32 {
        let value = top * f64::from(step) / STEPS;
        let y = y_of(value, top);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>",
            WIDTH - RIGHT
        );
        label(&mut svg, LEFT - 8.0, y + 4.0, "end", &short(value));
    }
    label(&mut svg, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM + 40.0, "middle", words.below);
    let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"18\" y=\"{middle:.1}\" text-anchor=\"middle\" fill=\"#111111\" transform=\"rotate(-90 18 {middle:.1})\">{}</text>",
        escaped(words.beside)
    );
    svg
}

fn legend(svg: &mut String, names: &[String]) {
    let wide = (WIDTH - LEFT - RIGHT) / names.len().clamp(1, 4) as f64;
    for (number, name) in names.iter().enumerate() {
        let x = LEFT + wide * (number % 4) as f64;
        let y = HEIGHT - 34.0 + 18.0 * (number / 4) as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"10\" fill=\"{}\"/>",
            y - 9.0,
            colour(number)
        );
        label(svg, x + 19.0, y, "start", name);
    }
}

/// A circle, square, triangle or diamond.
fn mark(svg: &mut String, number: usize, x: f64, y: f64) {
    let fill = colour(number);
    let _ = match number % 4 {
        0 => writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\"/>"),
        1 => writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" fill=\"{fill}\"/>",
            x - 4.0,
            y - 4.0
        ),
        2 => writeln!(svg, "<path d=\"M{x:.1} {:.1} l5 9 h-10 z\" fill=\"{fill}\"/>", y - 5.0),
        _ => writeln!(svg, "<path d=\"M{x:.1} {:.1} l5 5 l-5 5 l-5 -5 z\" fill=\"{fill}\"/>", y - 5.0),
    };
}

fn label(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"11\" fill=\"#333333\">{}</text>",
        escaped(text)
    );
}

/// A number in few letters: 1.2k, 35, 0.42.
pub fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let decimals = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Words<'_> = Words { title: "A < B & C", below: "nodes", beside: "IOPS" };

    /// Counts elements of a kind, and sees that each is closed.
    fn count(svg: &str, element: &str) -> usize {
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        svg.matches(&format!("<{element} ")).count()
    }

    #[test]
    fn a_bar_stands_for_each_value_and_its_height_is_its_share() {
        let groups = [
            Group { name: "2 nodes".into(), values: vec![Some(50.0), Some(100.0)] },
            Group { name: "3 nodes".into(), values: vec![None, Some(f64::NAN)] },
        ];
        let svg = bars(&WORDS, &["TCP".into(), "RDMA".into()], &groups);
        // The ground, two bars, two of the legend.
        assert_eq!(count(&svg, "rect"), 5);
        assert_eq!(svg.matches(">n/a<").count(), 2);
        assert!(svg.contains("A &lt; B &amp; C") && !svg.contains("NaN"));
        let plot = HEIGHT - TOP - BOTTOM;
        assert!(svg.contains(&format!("height=\"{plot:.1}\"")), "100 of 100 is as high as the axis: {svg}");
        assert!(svg.contains(&format!("height=\"{:.1}\"", plot / 2.0)), "50 of 100 is half as high");
    }

    #[test]
    fn lines_have_a_mark_at_each_point_and_ticks_at_their_places() {
        let line = |name: &str, scale: f64| Line {
            name: name.into(),
            points: [4096.0, 8192.0, 524_288.0].map(|x| (x, x * scale)).to_vec(),
        };
        let svg = lines(&WORDS, true, |x| format!("{}K", x / 1024.0), &[line("one", 1.0), line("two", 2.0)]);
        assert_eq!((count(&svg, "polyline"), count(&svg, "circle")), (2, 3));
        for tick in [">4K<", ">8K<", ">512K<"] {
            assert!(svg.contains(tick), "{tick}");
        }
    }

    #[test]
    fn a_figure_without_values_is_still_one() {
        assert!(bars(&WORDS, &[], &[]).ends_with("</svg>\n"));
        let svg =
            lines(&WORDS, true, |x| x.to_string(), &[Line { name: "none".into(), points: vec![(0.0, 1.0)] }]);
        assert!(!svg.contains("inf") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn axes_end_at_round_numbers_above_the_largest_value() {
        assert_eq!(axis_top(100.0), 100.0);
        assert_eq!(axis_top(4_959_166.0), 5_000_000.0);
        assert_eq!(axis_top(0.0), 1.0);
        assert!(axis_top(101.0) >= 101.0);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [4_959_166.0, 12_500.0, 35.0, 0.42, 0.0].map(short),
            ["4.96M", "12.5k", "35", "0.42", "0"]
        );
    }
}
