//! Charts of what has happened minute by minute: which column is how high, and the paths that draw them.

use std::fmt::Write as _;

use stepwell_protocol::Timestamp;

use crate::sheet::{Tone, grouped};

/// How wide a column is drawn, before a chart is stretched to its place.
pub const COLUMN: usize = 4;

/// How high a chart is drawn.
pub const HEIGHT: u64 = 100;

/// The most columns.
pub const COLUMNS_MAX: usize = 1_440;

/// A chart of columns, in each of which the series stand on each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// What it says, in words.
    pub summary: String,
    /// How many columns it has.
    pub columns: usize,
    /// What the top means.
    pub top: u64,
    /// When it begins and ends.
    pub span: (Timestamp, Timestamp),
    /// What is drawn.
    pub series: Vec<Drawn>,
}

/// A series that is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Its name.
    pub name: &'static str,
    /// Its colour.
    pub tone: Tone,
    /// How much it is in all.
    pub total: u64,
    /// The outline of its columns.
    pub path: String,
}

/// Figures of one kind, one for each column.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: &'static str,
    /// Its colour.
    pub tone: Tone,
    /// The figures.
    pub values: Vec<u64>,
}

impl Chart {
    /// Draws series of the same length.
    pub fn of(span: (Timestamp, Timestamp), series: &[Series]) -> Self {
        let columns = series.iter().map(|one| one.values.len()).max().unwrap_or(0).min(COLUMNS_MAX);
        let value = |one: &Series, column: usize| one.values.get(column).copied().unwrap_or(0);
        let height = |column| series.iter().map(|one| value(one, column)).sum::<u64>();
        let top = (0..columns).map(height).max().unwrap_or(0);
        let mut below = vec![0_u64; columns];
        let mut drawn = Vec::new();
        for one in series {
            let mut path = String::new();
            for (column, below) in below.iter_mut().enumerate() {
                let value = value(one, column);
                if value > 0 {
                    let (from, to) = (scaled(*below, top), scaled(*below + value, top));
                    // What has happened is seen, however little it is beside others.
                    let tall = (to - from).max(1);
                    let _ = write!(
                        path,
                        "M{} {}h{}v-{tall}h-{}z",
                        column * COLUMN,
                        HEIGHT - from.min(HEIGHT - tall),
                        COLUMN - 1,
                        COLUMN - 1
                    );
                    *below += value;
                }
            }
            let total = one.values.iter().take(columns).sum();
            drawn.push(Drawn { name: one.name, tone: one.tone, total, path });
        }
        let said: Vec<_> = drawn.iter().map(|one| format!("{} {}", grouped(one.total), one.name)).collect();
        Self { summary: said.join(", "), columns, top, span, series: drawn }
    }
}

fn scaled(value: u64, top: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(HEIGHT) / u128::from(top.max(1));
    u64::try_from(scaled).unwrap_or(HEIGHT).min(HEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn columns_stand_on_each_other_and_reach_the_top() {
        let series = [
            Series { name: "completed", tone: Tone::Good, values: vec![3, 0, 1] },
            Series { name: "failed", tone: Tone::Bad, values: vec![1, 0, 0] },
        ];
        let chart = Chart::of((at(0), at(3)), &series);
        assert_eq!((chart.columns, chart.top), (3, 4));
        assert_eq!(chart.summary, "4 completed, 1 failed");
        assert_eq!(chart.series[0].path, "M0 100h3v-75h-3zM8 100h3v-25h-3z");
        assert_eq!(chart.series[1].path, "M0 25h3v-25h-3z");
    }

    #[test]
    fn little_is_seen_beside_much_and_nothing_sticks_out() {
        let series = [
            Series { name: "a", tone: Tone::Good, values: vec![u64::MAX / 4, 1] },
            Series { name: "b", tone: Tone::Bad, values: vec![1, 0] },
        ];
        let chart = Chart::of((at(0), at(2)), &series);
        assert_eq!(chart.series[0].path, "M0 100h3v-99h-3zM4 100h3v-1h-3z");
        assert_eq!(chart.series[1].path, "M0 1h3v-1h-3z");
    }

    #[test]
    fn a_chart_without_figures_has_no_path() {
        let chart = Chart::of((at(0), at(1)), &[Series { name: "a", tone: Tone::Good, values: vec![0; 9] }]);
        assert_eq!((chart.top, chart.series[0].path.as_str()), (0, ""));
        let many = Series { name: "a", tone: Tone::Good, values: vec![1; 5_000] };
        assert_eq!(Chart::of((at(0), at(1)), &[many]).columns, COLUMNS_MAX);
    }
}
