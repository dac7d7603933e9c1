//! The chart: bars as SVG text. Its colours stand on a light and on a dark background alike.

use std::fmt::Write as _;

use crate::{
    load::as_f64,
    report::{COMPARED, Figure, find},
    system::{System, Workload},
};

const WIDTH: f64 = 760.0;
const LABEL_WIDTH: f64 = 120.0;
const VALUE_WIDTH: f64 = 80.0;
const BAR_HEIGHT: f64 = 20.0;
const BAR_STEP: f64 = 28.0;
const TITLE_HEIGHT: f64 = 34.0;
const PANEL_GAP: f64 = 22.0;

/// Between black and white, so that it can be read on either.
const TEXT: &str = "#78838f";
const BARE: &str = "#8b98a8";
const STEPWELL: &str = "#e0752d";

/// Draws one panel for each workload, at the concurrency at which systems are compared.
pub fn draw(figures: &[Figure]) -> String {
    let panels = [
        (Workload::TenSteps, "Runs of ten steps: steps per second"),
        (Workload::OneStep, "Runs of one step: runs per second"),
    ];
    let mut body = String::new();
    let mut top = 0.0;
    for (workload, title) in panels {
        let shown: Vec<(System, f64)> = System::ALL
            .into_iter()
            .filter_map(|system| Some((system, find(figures, system, workload, COMPARED)?.speed())))
            .collect();
        let title = format!("{title}, {COMPARED} runs at once");
        text(&mut body, 0.0, top + 20.0, "start", "bold", &title);
        top += TITLE_HEIGHT;
        panel(&mut body, top, &shown);
        top += as_f64(shown.len()) * BAR_STEP + PANEL_GAP;
    }
    let height = top - PANEL_GAP;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"14\" role=\"img\">\n\
         <title>Stepwell beside hand-written Durable Objects</title>\n{body}</svg>\n"
    )
}

fn panel(body: &mut String, top: f64, shown: &[(System, f64)]) {
    let longest = shown.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
    for (index, (system, speed)) in shown.iter().enumerate() {
        let y = top + as_f64(index) * BAR_STEP;
        let baseline = y + BAR_HEIGHT - 5.0;
        let width = if longest > 0.0 { (WIDTH - LABEL_WIDTH - VALUE_WIDTH) * speed / longest } else { 0.0 };
        let colour = if system.is_stepwell() { STEPWELL } else { BARE };
        text(body, LABEL_WIDTH - 10.0, baseline, "end", "normal", system.name());
        writeln!(
            body,
            "<rect x=\"{LABEL_WIDTH}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" rx=\"3\" fill=\"{colour}\"/>"
        )
        .expect("a string takes all that is written");
        text(body, LABEL_WIDTH + width + 8.0, baseline, "start", "normal", &thousands(*speed));
    }
}

fn text(body: &mut String, x: f64, y: f64, anchor: &str, weight: &str, words: &str) {
    writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-weight=\"{weight}\" fill=\"{TEXT}\">{words}</text>"
    )
    .expect("a string takes all that is written");
}

/// A whole number with commas, as in 12,345.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{count::Cost, load::Sample};

    fn figure(system: System, workload: Workload, runs: usize) -> Figure {
        let round = Sample {
            latencies: vec![Duration::from_millis(1); runs],
            runs: 0,
            measured: Duration::from_secs(1),
        };
        Figure::new(system, workload, COMPARED, &[round], Cost { rows: 0.0, requests: 0.0 })
    }

    #[test]
    fn the_fastest_has_the_longest_bar_and_the_others_their_share() {
        let drawn = draw(&[
            figure(System::Bare, Workload::TenSteps, 400),
            figure(System::Stepwell, Workload::TenSteps, 100),
        ]);
        assert!(drawn.contains(r##"width="560.0" height="20" rx="3" fill="#8b98a8""##), "{drawn}");
        assert!(drawn.contains(r##"width="140.0" height="20" rx="3" fill="#e0752d""##), "{drawn}");
        assert!(drawn.contains(">4,000</text>") && drawn.contains(">1,000</text>"), "{drawn}");
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!([7.4, 999.6, 1_234_567.0].map(thousands), ["7", "1,000", "1,234,567"]);
    }
}
