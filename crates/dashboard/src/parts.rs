//! Parts that several views have. All text of others goes through text nodes, never through markup.

use leptos::{ev, html, prelude::*};
use stepwell_dashboard_model::{json, number::fixed, place::Place, shown, when, window as rows};
use stepwell_protocol::{
    Timestamp,
    progress::Progress,
    rest::{RunView, Status},
};
use wasm_bindgen::JsCast as _;

use crate::app::App;

/// A status with its colour.
pub fn status(status: Status) -> impl IntoView {
    view! { <span class="status" data-status=status.as_str()>{status.as_str()}</span> }
}

/// A time: how long ago, and the instant for whoever points at it.
pub fn ago(at: Timestamp) -> impl IntoView {
    let app = App::here();
    view! { <time class="num" title=move || app.absolute(at)>{move || when::relative(at, app.now.get())}</time> }
}

/// A time: the instant, and how long ago that is.
pub fn instant(at: Timestamp) -> impl IntoView {
    let app = App::here();
    view! {
        <time class="num" title=move || when::relative(at, app.now.get())>{move || app.absolute(at)}</time>
    }
}

/// What a run is found by.
#[inline(never)]
pub fn labels(run: &RunView) -> AnyView {
    let attributes = run.attributes.iter().map(|(name, value)| format!("{name}={value}"));
    let labels = run.tags.iter().cloned().chain(attributes);
    labels.map(|label| view! { <span class="label">{word(&label)}</span> }).collect_view().into_any()
}

/// How far a run is, in its own words.
#[inline(never)]
pub fn progress(progress: &Progress) -> String {
    format!("{} % {}", fixed(progress.percent, 0), word(&progress.message))
}

/// A link to a run, whose id can be shortened to its end: runs of one cell begin alike.
pub fn run_link(place: Place, id: &str) -> impl IntoView + use<> {
    let (cell, own) = id.rsplit_once('-').map_or(("", id), |(cell, own)| (cell, own));
    let cell = if cell.is_empty() { String::new() } else { format!("{cell}-") };
    let text = view! { <span class="cell">{cell}</span>{own.to_owned()} };
    link(place, "quiet", text)
}

/// A link within the dashboard.
pub fn link(place: Place, class: &'static str, text: impl IntoView + 'static) -> impl IntoView {
    let app = App::here();
    let address = place.address();
    let follow = move |click: ev::MouseEvent| {
        // With a modifier, the browser opens another tab.
        if !(click.ctrl_key() || click.meta_key() || click.shift_key() || click.button() != 0) {
            click.prevent_default();
            app.go(place.clone());
        }
    };
    view! { <a class=class href=address on:click=follow>{text}</a> }
}

/// JSON for people: cut if it is long, with the whole of it to copy and to download.
pub fn payload(text: String, name: String) -> impl IntoView {
    let shown = json::pretty(&text);
    let size = json::size(text.len());
    let is_cut = shown.is_cut;
    let (copied, download) = (text.clone(), text);
    let is_copied = RwSignal::new(false);
    let copy = move |_| {
        let _ = window().navigator().clipboard().write_text(&copied);
        is_copied.set(true);
    };
    view! {
        <div class="payload">
            <pre tabindex="0">{shown.text}</pre>
            <p class="under">
                <span class="num">{size}</span>
                <Show when=move || is_cut><span>"cut: the download has all of it"</span></Show>
                <button class="plain" on:click=copy>{move || if is_copied.get() { "Copied" } else { "Copy" }}</button>
                <button class="plain" on:click=move |_| save(&name, &download)>"Download"</button>
            </p>
        </div>
    }
}

/// Gives a text to the browser as a file.
pub fn save(name: &str, text: &str) {
    let bytes = js_sys::Uint8Array::from(text.as_bytes());
    let parts = js_sys::Array::of1(&bytes);
    let Ok(blob) = web_sys::Blob::new_with_u8_array_sequence(&parts) else { return };
    let Ok(address) = web_sys::Url::create_object_url_with_blob(&blob) else { return };
    if let Ok(anchor) = document().create_element("a") {
        let anchor: web_sys::HtmlAnchorElement = anchor.unchecked_into();
        anchor.set_href(&address);
        anchor.set_download(name);
        anchor.click();
    }
    let _ = web_sys::Url::revoke_object_url(&address);
}

/// A text of others on one line.
pub fn word(text: &str) -> String {
    shown::line(text)
}

/// Something went wrong, or there is nothing: what happened and what to do.
pub fn notice(text: impl IntoView + 'static) -> impl IntoView {
    view! { <div class="notice" role="status">{text}</div> }
}

/// How a long list is scrolled.
#[derive(Clone, Copy)]
pub struct Scroll {
    /// The element that is scrolled.
    pub node: NodeRef<html::Div>,
    /// By how much.
    pub top: RwSignal<f64>,
    /// How much of it is seen.
    pub height: RwSignal<f64>,
    /// How wide it is.
    pub width: RwSignal<f64>,
    row_height: f64,
}

impl Scroll {
    /// A list at its top.
    pub fn new(row_height: f64) -> Self {
        let scroll = Self {
            node: NodeRef::new(),
            top: RwSignal::new(0.0),
            height: RwSignal::new(800.0),
            width: RwSignal::new(800.0),
            row_height,
        };
        let handle = window_event_listener_untyped("resize", move |_| scroll.measure());
        on_cleanup(move || handle.remove());
        Effect::new(move |_| {
            if scroll.node.get().is_some() {
                request_animation_frame(move || scroll.measure());
            }
        });
        scroll
    }

    /// Looks how much is seen, and where.
    pub fn measure(self) {
        if let Some(Some(node)) = self.node.try_get_untracked() {
            self.top.set(f64::from(node.scroll_top()));
            let (height, width) = (f64::from(node.client_height()), f64::from(node.client_width()));
            if (self.width.get_untracked() - width).abs() > 0.5 && width > 0.0 {
                self.width.set(width);
            }
            if (self.height.get_untracked() - height).abs() > 0.5 {
                self.height.set(height);
            }
        }
    }

    /// Scrolls by so many rows.
    pub fn shift(self, count: usize) {
        #[expect(clippy::cast_precision_loss, reason = "no list has 2^52 rows")]
        self.to(self.top.get_untracked() + count as f64 * self.row_height);
    }

    /// Brings a row into sight.
    pub fn show(self, row: usize) {
        let (top, height) = (self.top.get_untracked(), self.height.get_untracked());
        if let Some(top) = rows::scroll_to(row, top, height, self.row_height) {
            self.to(top);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "pixels")]
    fn to(self, top: f64) {
        // After the rows are there.
        request_animation_frame(move || {
            if let Some(Some(node)) = self.node.try_get_untracked() {
                node.set_scroll_top(top as i32);
                self.measure();
            }
        });
    }
}

/// The rows of a long list that are in sight. `item` gives a row, `key` tells rows apart, `draw` makes the inside of one.
pub fn windowed<T, V>(
    scroll: Scroll,
    count: Signal<usize>,
    item: impl Fn(usize) -> Option<T> + Send + Sync + 'static,
    key: impl Fn(&T) -> String + Copy + Send + Sync + 'static,
    draw: impl Fn(Memo<(usize, T)>) -> V + Clone + Send + Sync + 'static,
) -> impl IntoView
where
    T: Clone + PartialEq + Send + Sync + 'static,
    V: IntoView + 'static,
{
    let row_height = scroll.row_height;
    // An empty list is hidden, and has no height before it is shown.
    let is_empty = Memo::new(move |_| count.get() == 0);
    Effect::new(move |_| {
        if !is_empty.get() {
            request_animation_frame(move || scroll.measure());
        }
    });
    let visible = Memo::new(move |_| {
        let range = rows::visible(scroll.top.get(), scroll.height.get(), row_height, count.get());
        range.filter_map(|index| item(index).map(|item| (index, item))).collect::<Vec<_>>()
    });
    #[expect(clippy::cast_precision_loss, reason = "no list has 2^52 rows")]
    let pixels = move |rows: usize| format!("{}px", fixed(rows as f64 * row_height, 0));
    let children = move |(index, first): (usize, T)| {
        let wanted = key(&first);
        let row = Memo::new(move |before: Option<&(usize, T)>| {
            let found = visible.with(|rows| rows.iter().find(|(_, item)| key(item) == wanted).cloned());
            found.or_else(|| before.cloned()).unwrap_or_else(|| (index, first.clone()))
        });
        draw(row)
    };
    view! {
        <div class="rows" style:height=move || pixels(count.get())>
            <For each=move || visible.get() key=move |(_, item)| key(item) children=children />
        </div>
    }
}

/// Where a row is.
pub fn offset(index: usize, row_height: f64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "no list has 2^52 rows")]
    let pixels = index as f64 * row_height;
    format!("translateY({}px)", fixed(pixels, 0))
}
