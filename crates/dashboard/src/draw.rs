//! Draws pages that are data. What is the same as before is not drawn again: whoever reads or selects there is not
//! disturbed.

use leptos::prelude::*;
use stepwell_dashboard_model::{
    chart::{COLUMN, Chart, HEIGHT},
    form::Action,
    json,
    place::Place,
    sheet::{Body, Cell, Find, Section, Sheet, Table, grouped},
    shown, when,
};
use stepwell_protocol::Timestamp;
use web_sys::Element;

use crate::{
    app::App,
    element::{Made, button, clear, el, svg},
    parts::word,
};

/// A text with more bytes than this has a column that is wide enough to read it.
const LONG: usize = 24;

/// What is drawn of a page.
#[derive(Default)]
pub struct Drawn {
    /// The page.
    pub sheet: Option<Sheet>,
    top: Option<Element>,
    sections: Vec<Element>,
}

impl Drawn {
    /// Draws a page in this element, as far as it has changed.
    pub fn draw(&mut self, app: App, root: &Element, sheet: Sheet) {
        if self.sheet.as_ref() == Some(&sheet) {
            return;
        }
        if self.sheet.is_none() {
            clear(root);
            let top = el("div", "top").0;
            let _ = root.append_child(&top);
            self.top = Some(top);
            self.sections.clear();
        }
        let before = self.sheet.take();
        if let Some(top_element) = &self.top
            && !before.as_ref().is_some_and(|before| is_same_top(before, &sheet))
        {
            clear(top_element);
            let _ =
                top(app, &sheet).into_iter().try_for_each(|part| top_element.append_child(&part.0).map(drop));
        }
        while self.sections.len() > sheet.sections.len() {
            if let Some(section) = self.sections.pop() {
                section.remove();
            }
        }
        for (index, section) in sheet.sections.iter().enumerate() {
            let old = before.as_ref().and_then(|before| before.sections.get(index));
            match (self.sections.get(index), old) {
                (Some(_), Some(old)) if old == section => {}
                (Some(element), Some(old)) if is_same_but_rows(old, section) => {
                    rows(app, element, index, old, section);
                }
                (Some(element), _) => {
                    clear(element);
                    fill(app, element, index, section);
                }
                (None, _) => {
                    let element = el("section", "panel").0;
                    fill(app, &element, index, section);
                    let _ = root.append_child(&element);
                    self.sections.push(element);
                }
            }
        }
        self.sheet = Some(sheet);
    }

    /// What a button of it is for.
    pub fn action(&self, at: &str) -> Option<Action> {
        let sheet = self.sheet.as_ref()?;
        let numbers: Vec<usize> = at.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
        let found = match *numbers.as_slice() {
            [index] => sheet.actions.get(index),
            [section, index] => sheet.sections.get(section)?.actions.get(index),
            [section, row, column, index] => match &sheet.sections.get(section)?.body {
                Body::Table(table) => match table.rows.get(row)?.get(column)? {
                    Cell::Actions(actions) => actions.get(index),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        };
        found.cloned()
    }

    /// What a part of it has.
    pub fn body(&self, at: &str) -> Option<&Body> {
        let section = self.sheet.as_ref()?.sections.get(at.parse::<usize>().ok()?)?;
        Some(&section.body)
    }
}

fn is_same_top(one: &Sheet, other: &Sheet) -> bool {
    (&one.title, &one.up, &one.state, &one.wrong, &one.actions)
        == (&other.title, &other.up, &other.state, &other.wrong, &other.actions)
}

/// Whether both are tables with the same frame, so that only rows differ.
fn is_same_but_rows(one: &Section, other: &Section) -> bool {
    let frame = |section: &Section| (section.title.clone(), section.note.clone(), section.actions.clone());
    let (Body::Table(old), Body::Table(new)) = (&one.body, &other.body) else { return false };
    frame(one) == frame(other)
        && old.columns == new.columns
        && old.rows.is_empty() == new.rows.is_empty()
        && (&old.first, &old.next) == (&new.first, &new.next)
}

fn top(app: App, sheet: &Sheet) -> Vec<Made> {
    let up = sheet.up.as_ref().map(|(place, name)| link(place, "back", &format!("← {name}")));
    let state = sheet.state.as_ref().map(|state| cell(app, state, ""));
    let actions = el("div", "actions")
        .attr("role", "group")
        .attr("aria-label", "Actions")
        .with_all(buttons(&sheet.actions, ""))
        .with(button("plain refresh", "Refresh", "refresh"));
    let title = el("div", "title")
        .with_any(up)
        .with(el("h1", "").text(&word(&sheet.title)))
        .with_any(state)
        .with(el("span", "space"))
        .with(actions);
    let wrong = sheet.wrong.as_ref().map(|(title, words)| {
        el("div", "wrong")
            .attr("role", "group")
            .attr("aria-label", "Problem")
            .with(el("b", "").text(&word(title)))
            .with(el("p", "").text(&word(words)))
    });
    let trouble = el("p", "error").attr("role", "alert");
    [Some(title), wrong, Some(trouble)].into_iter().flatten().collect()
}

fn fill(app: App, element: &Element, index: usize, section: &Section) {
    let prefix = format!("{index}.");
    let made = Made(element.clone());
    let head = (!(section.title.is_empty() && section.actions.is_empty())).then(|| {
        let title = (!section.title.is_empty()).then(|| el("h2", "").text(&word(&section.title)));
        el("div", "head-of")
            .with_any(title)
            .with(el("span", "actions").with_all(buttons(&section.actions, &prefix)))
    });
    let note = (!section.note.is_empty()).then(|| el("p", "dim note").text(&word(&section.note)));
    let made = made.with_any(head).with_any(note);
    let body = match &section.body {
        Body::Nothing => Vec::new(),
        Body::Facts(facts) => {
            let mut list = el("dl", "facts");
            for (name, value) in facts {
                list =
                    list.with(el("dt", "").text(&word(name))).with(el("dd", "").with(cell(app, value, "")));
            }
            vec![list]
        }
        Body::Table(table) if table.rows.is_empty() => vec![empty(table)],
        Body::Table(table) => whole_table(app, index, &section.title, table),
        Body::Payload(text, _) => vec![payload(text, index)],
        Body::Find(find) => vec![field(find, index)],
        Body::Chart(chart) => vec![drawn_chart(app, chart)],
        Body::Unlock => vec![unlock()],
    };
    made.with_all(body);
}

fn empty(table: &Table) -> Made {
    let command = &table.empty.command;
    let command = (!command.is_empty()).then(|| el("pre", "").attr("tabindex", "0").text(command));
    el("div", "nothing")
        .attr("role", "status")
        .with(el("p", "").text(&word(&table.empty.words)))
        .with_any(command)
        .with_any(pages(table))
}

fn whole_table(app: App, index: usize, title: &str, table: &Table) -> Vec<Made> {
    let mut heads = el("tr", "");
    for column in &table.columns {
        let name = column.trim_start_matches('>');
        let head = el("th", if name.len() < column.len() { "right" } else { "" }).attr("scope", "col");
        // The column of buttons has a name for those who hear it.
        heads = heads.with(if name.is_empty() {
            head.with(el("span", "hidden").text("Actions"))
        } else {
            head.text(name)
        });
    }
    let mut body = el("tbody", "");
    for number in 0..table.rows.len() {
        body = body.with(row(app, index, number, table));
    }
    let label = if title.is_empty() { "List".to_owned() } else { word(title) };
    let scrolled = el("div", "wide-table")
        .attr("tabindex", "0")
        .attr("role", "region")
        .attr("aria-label", &label)
        .with(el("table", "").with(el("thead", "").with(heads)).with(body));
    [Some(scrolled), pages(table)].into_iter().flatten().collect()
}

fn row(app: App, index: usize, number: usize, table: &Table) -> Made {
    let cells = table.rows.get(number).into_iter().flatten().enumerate();
    let drawn = cells.map(|(column, value)| {
        let is_right = table.columns.get(column).is_some_and(|name| name.starts_with('>'));
        let inner = cell(app, value, &format!("{index}.{number}.{column}."));
        let outer = if column == 0 {
            el("th", "").attr("scope", "row")
        } else {
            // On a narrow screen, sentences would otherwise become columns of words.
            let first = if let Cell::Many(cells) = value { cells.first() } else { Some(value) };
            let is_long = matches!(first, Some(Cell::Text(text)) if text.len() > LONG);
            el(
                "td",
                if is_right {
                    "right num"
                } else if is_long {
                    "long"
                } else {
                    ""
                },
            )
        };
        outer.with(inner)
    });
    el("tr", "").with_all(drawn.collect())
}

/// Draws the rows that have changed.
fn rows(app: App, element: &Element, index: usize, old: &Section, new: &Section) {
    let (Body::Table(old), Body::Table(new)) = (&old.body, &new.body) else { return };
    let Ok(Some(body)) = element.query_selector("tbody") else { return };
    let drawn = body.children();
    for number in (new.rows.len()..old.rows.len()).rev() {
        if let Some(row) = u32::try_from(number).ok().and_then(|number| drawn.item(number)) {
            row.remove();
        }
    }
    for number in 0..new.rows.len() {
        if old.rows.get(number) == new.rows.get(number) {
            continue;
        }
        let made = row(app, index, number, new);
        match u32::try_from(number).ok().and_then(|number| drawn.item(number)) {
            Some(known) => drop(body.replace_child(&made.0, &known)),
            None => drop(body.append_child(&made.0)),
        }
    }
}

/// Links to the first and the next page of a list.
fn pages(table: &Table) -> Option<Made> {
    let first = table.first.as_ref().map(|place| link(place, "", "First page"));
    let next = table.next.as_ref().map(|place| link(place, "", "Next page"));
    (first.is_some() || next.is_some()).then(|| el("p", "pages").with_any(first).with_any(next))
}

fn link(place: &Place, class: &str, text: &str) -> Made {
    el("a", class).attr("href", &place.address()).text(text)
}

/// A value. `at` is what stands before the numbers of its buttons.
fn cell(app: App, value: &Cell, at: &str) -> Made {
    match value {
        Cell::Text(text) => el("span", "").text(&word(text)),
        Cell::Dim(text) => el("span", "dim").text(&word(text)),
        Cell::Mono(text) => el("span", "mono").text(&word(text)),
        Cell::Block(text) => el("pre", "").attr("tabindex", "0").text(&shown::block(text)),
        Cell::At(instant) => time(app, *instant, "at"),
        Cell::Ago(instant) => time(app, *instant, "ago"),
        Cell::Status(status) => {
            el("span", "status").attr("data-status", status.as_str()).text(status.as_str())
        }
        Cell::State(tone, text) => {
            el("span", "status").attr("data-status", tone.as_status().as_str()).text(&word(text))
        }
        Cell::Link(place, text) => link(place, "quiet", &word(text)),
        Cell::Run(id) => {
            // Runs of one cell begin alike: on a narrow screen, their end is enough.
            let (cell, own) = id
                .rsplit_once('-')
                .map_or((String::new(), id.as_str()), |(cell, own)| (format!("{cell}-"), own));
            el("a", "quiet mono")
                .attr("href", &Place::of_run(id).address())
                .with(el("span", "cell").text(&word(&cell)))
                .text(&word(own))
        }
        Cell::Label(text) => el("span", "label").text(&word(text)),
        Cell::Many(cells) => {
            el("span", "many").with_all(cells.iter().map(|value| cell(app, value, at)).collect())
        }
        Cell::Actions(actions) => el("span", "many").with_all(buttons(actions, at)),
    }
}

fn buttons(actions: &[Action], at: &str) -> Vec<Made> {
    let one = |(index, action): (usize, &Action)| {
        button("", &word(&action.label), "act")
            .attr("data-at", &format!("{at}{index}"))
            .attr("title", &word(&action.title))
    };
    actions.iter().enumerate().map(one).collect()
}

fn time(app: App, at: Timestamp, how: &str) -> Made {
    let made = el("time", "num").attr("data-ms", &at.as_millis().to_string()).attr("data-how", how);
    tell(app, &made.0);
    made
}

/// Writes a time into its element, as it is told by now.
pub fn tell(app: App, element: &Element) {
    let ms = element.get_attribute("data-ms").and_then(|text| text.parse().ok()).unwrap_or(0);
    let at = Timestamp::from_millis(ms);
    let (ago, absolute) = (when::relative(at, app.now.get_untracked()), app.absolute(at));
    let (text, title) = if element.get_attribute("data-how").as_deref() == Some("ago") {
        (ago, absolute)
    } else {
        (absolute, ago)
    };
    if element.text_content().as_deref() != Some(&text) {
        element.set_text_content(Some(&text));
    }
    let _ = element.set_attribute("title", &title);
}

/// JSON for people: cut if it is long, with the whole of it to copy and to download.
fn payload(text: &str, index: usize) -> Made {
    let pretty = json::pretty(text);
    let cut = pretty.is_cut.then(|| el("span", "").text("cut: the download has all of it"));
    let at = index.to_string();
    let under = el("p", "under")
        .with(el("span", "num").text(&json::size(text.len())))
        .with_any(cut)
        .with(button("plain", "Copy", "copy").attr("data-at", &at))
        .with(button("plain", "Download", "save").attr("data-at", &at));
    el("div", "payload").with(el("pre", "").attr("tabindex", "0").text(&pretty.text)).with(under)
}

/// A field that leads to another page.
fn field(find: &Find, index: usize) -> Made {
    let input = el("input", "")
        .attr("type", "text")
        .attr("autocomplete", "off")
        .attr("spellcheck", "false")
        .attr("placeholder", find.example);
    el("form", "find")
        .attr("data-at", &index.to_string())
        .with(el("label", "").text(find.label).with(input))
        .with(el("button", "").text(find.button))
}

/// A field for the deployment's own key.
fn unlock() -> Made {
    let input = el("input", "")
        .attr("type", "password")
        .attr("autocomplete", "off")
        .attr("spellcheck", "false")
        .attr("required", "");
    el("form", "find unlock")
        .with(el("label", "").text("The deployment's own key").with(input))
        .with(el("button", "").text("Use this key"))
}

fn drawn_chart(app: App, chart: &Chart) -> Made {
    let mut key = el("span", "many");
    let view_box = format!("0 0 {} {HEIGHT}", (chart.columns * COLUMN).max(1));
    let mut drawing = svg("svg")
        .attr("viewBox", &view_box)
        .attr("preserveAspectRatio", "none")
        .attr("role", "img")
        .attr("aria-label", &chart.summary);
    for one in &chart.series {
        let status = one.tone.as_status().as_str();
        let text = format!("{} {}", grouped(one.total), one.name);
        key = key.with(el("span", "status").attr("data-status", status).text(&text));
        drawing = drawing.with(svg("path").attr("data-status", status).attr("d", &one.path));
    }
    let top = format!("{} in a minute at most", grouped(chart.top));
    let under = el("p", "under").with(time(app, chart.span.0, "at")).with(el("span", "space")).with(time(
        app,
        chart.span.1,
        "at",
    ));
    el("figure", "chart")
        .with(el("figcaption", "").with(key).with(el("span", "dim num").text(&top)))
        .with(drawing)
        .with(under)
}
