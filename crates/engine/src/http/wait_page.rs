//! The page of a wait token: what is asked, and a form to answer it. Needs no JavaScript.
//!
//! Made of the same answers that programs get as JSON, so a person and a program are told the same.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use sha2::{Digest as _, Sha256};
use stepwell_protocol::{
    Code, Problem, json,
    routes::Route,
    wait_token::{Standing, TokenReceipt, TokenView},
};

use super::response::Response;

const STYLE: &str = include_str!("wait_page.css");

const FORM: &str = r#"<form method="post">
<label for="comment">Comment (optional)</label>
<textarea id="comment" name="comment" rows="3" maxlength="4000"></textarea>
<div class="row"><button name="decision" value="accept">Accept</button>
<button name="decision" value="reject" class="plain">Reject</button></div>
</form>"#;

/// The same answer for a person.
pub fn page(route: Route, response: Response) -> Response {
    let (status, text) = (response.status, response.into_text());
    if status >= 400 {
        let problem = json::from_str::<Problem>(&text);
        return refused(status, problem.ok().as_ref());
    }
    if route == Route::CompleteToken {
        let is_repeat = json::from_str::<TokenReceipt>(&text).is_ok_and(|receipt| receipt.duplicate);
        return if is_repeat { answered() } else { thanks() };
    }
    json::from_str::<TokenView>(&text).map_or_else(|_| refused(500, None), |view| shown(&view))
}

fn shown(view: &TokenView) -> Response {
    let title = escaped(&view.title);
    match view.status {
        Standing::Early => html(
            200,
            "Not ready yet",
            "<p>This question is not ready yet. Open the link again in a moment.</p>",
        ),
        Standing::Answered => answered(),
        Standing::Open => {
            let detail = match view.detail.trim() {
                "" => String::new(),
                detail => format!(r#"<p class="detail">{}</p>"#, escaped(detail)),
            };
            let how = if view.has_form {
                FORM.to_owned()
            } else {
                let expects = escaped(view.expects.as_deref().unwrap_or("something else"));
                format!(
                    "<p>This page cannot answer it: the answer is {expects}. Send it as JSON to this address.</p>"
                )
            };
            html(200, &title, &format!("{detail}{how}"))
        }
    }
}

fn thanks() -> Response {
    html(200, "Thank you", "<p>Your answer was recorded. You can close this page.</p>")
}

fn answered() -> Response {
    html(200, "Already answered", "<p>This question was answered before. You can close this page.</p>")
}

fn refused(status: u16, problem: Option<&Problem>) -> Response {
    let (title, detail) = match problem.map(|problem| (problem.code, &problem.detail)) {
        Some((Code::TokenExpired, _)) => {
            ("This link has expired", "Nothing was recorded. Ask the sender for a new one.".to_owned())
        }
        Some((Code::TokenRevoked, _)) => {
            ("No longer needed", "An answer is no longer needed. Nothing was recorded.".to_owned())
        }
        Some((Code::TokenNotFound, _)) => (
            "No such link",
            "Check that the address is complete, or ask the sender for a new one.".to_owned(),
        ),
        Some((_, detail)) if status < 500 => ("Your answer was not recorded", escaped(detail)),
        Some(_) | None => (
            "Something went wrong",
            "Your answer may not have been recorded. Try again in a moment.".to_owned(),
        ),
    };
    html(status, title, &format!("<p>{detail}</p>"))
}

/// `title` and `body` are HTML.
fn html(status: u16, title: &str, body: &str) -> Response {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"robots\" content=\"noindex\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <main>\n<h1>{title}</h1>\n{body}\n</main>\n</html>\n"
    );
    let style = BASE64_STANDARD.encode(Sha256::digest(STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    Response::new(status, "text/html; charset=utf-8", page)
        .with("content-security-policy", policy)
        .with("referrer-policy", "no-referrer")
        .with("x-robots-tag", "noindex")
}

/// A text as HTML shows it.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use stepwell_protocol::Timestamp;

    use super::*;

    fn view(status: Standing, has_form: bool) -> Response {
        let view = TokenView {
            status,
            title: "Refund <b>\"42\"</b> & 'go'?".into(),
            detail: "<script>alert(1)</script>\nsecond line".into(),
            expires_at: Timestamp::MAX,
            expects: Some("a <number>".into()),
            has_form,
        };
        page(Route::ShowToken, Response::of(200, &view))
    }

    #[test]
    fn whatever_a_workflow_says_is_text() {
        let text = view(Standing::Open, true).into_text();
        assert!(
            text.contains("<h1>Refund &lt;b&gt;&quot;42&quot;&lt;/b&gt; &amp; &#39;go&#39;?</h1>"),
            "{text}"
        );
        assert!(!text.contains("<script") && text.contains("&lt;script&gt;"), "{text}");
        assert!(text.contains(r#"<form method="post">"#), "{text}");
    }

    #[test]
    fn there_is_a_form_only_where_it_can_answer() {
        for (status, has_form) in
            [(Standing::Open, false), (Standing::Early, false), (Standing::Answered, true)]
        {
            assert!(!view(status, has_form).into_text().contains("<form"), "{status:?}");
        }
        assert!(view(Standing::Open, false).into_text().contains("a &lt;number&gt;"));
    }

    #[test]
    fn a_refusal_keeps_its_status_and_tells_nothing_of_the_inside() {
        let problem = |code: Code| {
            let problem = Problem::new(code, "cell 3 <b>fell over</b>");
            page(Route::CompleteToken, Response::of(problem.status, &problem))
        };
        for (code, status) in
            [(Code::TokenExpired, 410), (Code::TokenRevoked, 410), (Code::TokenNotFound, 404)]
        {
            assert_eq!(problem(code).status, status);
        }
        assert!(!problem(Code::Internal).into_text().contains("fell over"));
        assert!(problem(Code::SignalMismatch).into_text().contains("&lt;b&gt;fell over"));
    }
}
