//! The vectors that the schemes publish, and what is wrong with a delivery one thing at a time.

use proptest::prelude::*;

use super::*;

const STANDARD: &str = r#"{"kind":"standard","event":"a/b"}"#;
const GITHUB: &str = r#"{"kind":"github","event":"a/b"}"#;
const STRIPE: &str = r#"{"kind":"stripe","event":"a/b"}"#;
const SLACK: &str = r#"{"kind":"slack","event":"a/b"}"#;
const HMAC: &str = r#"{"kind":"hmac","event":"a/b","header":"X-Signature","id_header":"X-Id"}"#;
const HMAC_512: &str = r#"{"kind":"hmac","event":"a/b","header":"X-Sig","prefix":"sha512=","encoding":"base64",
    "algorithm":"sha512"}"#;
const ALL: [&str; 6] = [STANDARD, GITHUB, STRIPE, SLACK, HMAC, HMAC_512];

/// Base64 of 24 bytes, and good as a text.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const NOW: u64 = 1_700_000_000;
const BODY: &str = r#"{"test": 2432232314}"#;

fn spec(text: &str) -> WebhookSpec {
    serde_json::from_str(text).expect("it is one")
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn named(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Verifies a delivery of [`BODY`].
fn check(spec: &WebhookSpec, headers: &[(String, String)]) -> Result<(), Refused> {
    verify(spec, &[SECRET], headers, BODY.as_bytes(), Some(at(NOW)))
}

#[test]
fn the_vectors_of_standard_webhooks_are_good() {
    let spec = spec(STANDARD);
    for (secret, id, time, body, signature) in [
        (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (
            "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
            "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
            1_649_367_553,
            r#"{"email":"test@example.com","username":"test_user"}"#,
            "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
        ),
    ] {
        let headers = sign(&spec, secret, id, at(time), body.as_bytes());
        assert_eq!(header(&headers, "Webhook-Signature"), Some(signature));
        let without_prefix = secret.strip_prefix("whsec_").unwrap_or_default();
        for secret in [secret, without_prefix] {
            assert_eq!(verify(&spec, &[secret], &headers, body.as_bytes(), Some(at(time))), Ok(()));
        }
        let others = format!(
            "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= v2,{} {signature} v1a,x",
            "Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
        );
        let time_text = time.to_string();
        let several =
            named(&[("webhook-id", id), ("webhook-timestamp", &time_text), ("webhook-signature", &others)]);
        assert_eq!(verify(&spec, &[secret], &several, body.as_bytes(), Some(at(time))), Ok(()));
    }
}

#[test]
fn the_documented_vectors_of_github_and_slack_are_good() {
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let headers = named(&[("X-Hub-Signature-256", signature)]);
    let secret = "It's a Secret to Everybody";
    assert_eq!(verify(&spec(GITHUB), &[secret], &headers, b"Hello, World!", Some(at(NOW))), Ok(()));

    let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&\
        channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&\
        response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&\
        trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    let signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
    let headers = named(&[("X-Slack-Request-Timestamp", "1531420618"), ("X-Slack-Signature", signature)]);
    let secret = "8f742231b10e8888abcd99yyyzzz85a5";
    assert_eq!(verify(&spec(SLACK), &[secret], &headers, body.as_bytes(), Some(at(1_531_420_618))), Ok(()));
}

#[test]
fn the_hmacs_are_those_of_the_standards() {
    // The second case of RFC 4231.
    let signed = |kind: &str| sign(&spec(kind), "Jefe", "1", at(NOW), b"what do ya want for nothing?");
    let text = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(header(&signed(HMAC), "x-signature"), Some(text));
    let of_512 = "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fd\
        caeab1a34d4a6b4b636e070a38bce737";
    let expected = base64::engine::general_purpose::STANDARD.encode(unhex(of_512).expect("digits"));
    assert_eq!(header(&signed(HMAC_512), "x-sig"), Some(format!("sha512={expected}").as_str()));
}

#[test]
fn each_scheme_takes_what_it_signs_and_nothing_that_was_altered() {
    for text in ALL {
        let spec = spec(text);
        let headers = sign(&spec, SECRET, "id-1", at(NOW), BODY.as_bytes());
        assert_eq!(check(&spec, &headers), Ok(()), "{text}");
        let altered = BODY.replace("243", "244");
        let refused = verify(&spec, &[SECRET], &headers, altered.as_bytes(), Some(at(NOW)));
        assert_eq!(refused, Err(Refused::Mismatch), "{text}: an altered byte");
        for secrets in [vec![], vec![OTHER]] {
            let refused = verify(&spec, &secrets, &headers, BODY.as_bytes(), Some(at(NOW)));
            assert_eq!(refused, Err(Refused::Mismatch), "{text}: a retired secret");
        }
        let two = verify(&spec, &[OTHER, SECRET], &headers, BODY.as_bytes(), Some(at(NOW)));
        assert_eq!(two, Ok(()), "{text}: a second secret");
    }
}

#[test]
fn whatever_is_signed_cannot_be_left_out_or_replaced() {
    for text in ALL {
        let spec = spec(text);
        let headers = sign(&spec, SECRET, "id-1", at(NOW), BODY.as_bytes());
        for at in 0..headers.len() {
            let mut fewer = headers.clone();
            let (name, _) = fewer.remove(at);
            let is_needed = Some(name.as_str()) != id_header(&spec) || spec.kind == WebhookKind::Standard;
            let expected = if is_needed { Err(Refused::Missing(name.clone())) } else { Ok(()) };
            assert_eq!(check(&spec, &fewer), expected, "{text} without {name}");
        }
        let name = signature_header(&spec).to_owned();
        for garbage in ["", " ", "v1,", "t=", "sha256=xyz", "v0=zz", "\u{e4}", "t=1,v1=", "v1,===="] {
            let mut other = headers.clone();
            other.retain(|(known, _)| *known != name);
            other.push((name.clone(), garbage.to_owned()));
            assert!(check(&spec, &other).is_err(), "{text}: {garbage}");
        }
    }
}

#[test]
fn a_signed_id_cannot_be_swapped() {
    let spec = spec(STANDARD);
    let mut headers = sign(&spec, SECRET, "id-1", at(NOW), BODY.as_bytes());
    for (name, value) in &mut headers {
        if name == "webhook-id" {
            *value = "id-2".into();
        }
    }
    assert_eq!(check(&spec, &headers), Err(Refused::Mismatch));
}

#[test]
fn a_delivery_is_good_for_five_minutes_where_its_time_is_signed() {
    for text in ALL {
        let spec = spec(text);
        let has_time = matches!(spec.kind, WebhookKind::Standard | WebhookKind::Stripe | WebhookKind::Slack);
        for (time, expected) in [
            (NOW - 300, Ok(())),
            (NOW - 301, Err(Refused::Stale)),
            (NOW + 300, Ok(())),
            (NOW + 301, Err(Refused::Future)),
            (0, Err(Refused::Stale)),
        ] {
            let headers = sign(&spec, SECRET, "id-1", at(time), BODY.as_bytes());
            let expected = if has_time { expected } else { Ok(()) };
            assert_eq!(check(&spec, &headers), expected, "{text} at {time}");
            assert_eq!(verify(&spec, &[SECRET], &headers, BODY.as_bytes(), None), Ok(()), "at any time");
        }
        let longer = WebhookSpec { tolerance_s: Some(3_600), ..spec };
        let headers = sign(&longer, SECRET, "id-1", at(NOW - 3_600), BODY.as_bytes());
        assert_eq!(check(&longer, &headers), Ok(()), "{text}");
    }
}

#[test]
fn a_time_that_was_replaced_does_not_make_an_old_delivery_fresh() {
    for text in [STANDARD, STRIPE, SLACK] {
        let spec = spec(text);
        let mut headers = sign(&spec, SECRET, "id-1", at(NOW - 1_000), BODY.as_bytes());
        for (_, value) in &mut headers {
            *value = value.replace(&(NOW - 1_000).to_string(), &NOW.to_string());
        }
        assert_eq!(check(&spec, &headers), Err(Refused::Mismatch), "{text}");
        for time in ["", "+1700000000", "-1", "1e9", " 1700000000", "99999999999999999999999"] {
            let mut other = sign(&spec, SECRET, "id-1", at(NOW), BODY.as_bytes());
            for (_, value) in &mut other {
                *value = value.replace(&NOW.to_string(), time);
            }
            assert!(check(&spec, &other).is_err(), "{text}: {time}");
        }
    }
}

#[test]
fn no_more_than_sixteen_signatures_are_looked_at() {
    let spec = spec(STANDARD);
    let headers = sign(&spec, SECRET, "id-1", at(NOW), BODY.as_bytes());
    let good = header(&headers, "webhook-signature").unwrap_or_default().to_owned();
    let wrong = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=";
    for (before, is_good) in [(15, true), (16, false), (10_000, false)] {
        let several = format!("{}{good}", format!("{wrong} ").repeat(before));
        let mut headers = headers.clone();
        headers.retain(|(name, _)| name != "webhook-signature");
        headers.push(("webhook-signature".into(), several));
        assert_eq!(check(&spec, &headers).is_ok(), is_good, "after {before} others");
    }
}

#[test]
fn secrets_that_anybody_could_guess_are_no_secrets() {
    for text in ALL {
        let kind = spec(text).kind;
        assert_eq!(check_secret(kind, SECRET), Ok(()));
        for bad in ["", "whsec_", "short", &"x".repeat(800)] {
            assert!(check_secret(kind, bad).is_err(), "{text}: {bad}");
        }
    }
    assert!(check_secret(WebhookKind::Standard, "whsec_not base64 at all!").is_err());
}

proptest! {
    #[test]
    fn no_alteration_of_a_delivery_is_good(
        kind in 0..ALL.len(),
        body in prop::collection::vec(any::<u8>(), 1..80),
        place in any::<prop::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let spec = spec(ALL[kind]);
        let headers = sign(&spec, SECRET, "id-1", at(NOW), &body);
        prop_assert_eq!(verify(&spec, &[SECRET], &headers, &body, Some(at(NOW))), Ok(()));
        let mut altered = body;
        let place = place.index(altered.len());
        altered[place] ^= 1 << bit;
        prop_assert_eq!(verify(&spec, &[SECRET], &headers, &altered, Some(at(NOW))), Err(Refused::Mismatch));
    }

    #[test]
    fn no_header_is_a_reason_to_panic(kind in 0..ALL.len(), text in "\\PC{0,80}", time in "[0-9]{0,30}") {
        let spec = spec(ALL[kind]);
        let name = signature_header(&spec).to_owned();
        let mut headers = vec![(name, text), ("webhook-id".into(), "1".into())];
        headers.extend(time_header(spec.kind).map(|name| (name.to_owned(), time)));
        prop_assert!(check(&spec, &headers).is_err());
    }
}
