//! `#[workflow]`: a function of the same name that gives a `stepwell::Workflow`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::{
    Error, ExprMethodCall, ExprPath, FnArg, Item, ItemFn, LitInt, LitStr, ReturnType, TypeImplTrait,
    meta::ParseNestedMeta,
    parse::Parser,
    parse_quote_spanned,
    spanned::Spanned,
    visit_mut::{self, VisitMut},
};

pub fn expand(attributes: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    let attributes = attributes_of(attributes)?;
    let (cancel_on, trigger) = (attributes.cancel_on()?, attributes.trigger()?);
    let Attributes {
        name,
        timeout_ms,
        retention_ms,
        dispatch,
        key_required,
        input_schema,
        schedule,
        zone,
        flow,
        callback,
        ..
    } = attributes;
    let name = name.unwrap_or_else(|| function.sig.ident.to_string());
    let timeout = timeout_ms.map(|ms| quote!(.timeout(::std::time::Duration::from_millis(#ms))));
    let retention = retention_ms.map(|ms| quote!(.retention(::std::time::Duration::from_millis(#ms))));
    let idempotency = key_required.then(|| quote!(.requires_key()));
    let schema = input_schema.map(|path| quote!(.input_schema(#path)));
    let schedule = schedule_of(schedule, zone)?;
    let callback = callback.map(|url| quote!(.callback(#url)));
    let dispatch = dispatch.map(|variant| quote!(.dispatch(::stepwell::Dispatch::#variant)));
    if name.is_empty() || name.len() > 128 {
        return Err(Error::new(function.sig.ident.span(), "a workflow's name has 1 to 128 bytes"));
    }
    check(&function)?;

    let (attrs, visibility, ident) = (&function.attrs, &function.vis, &function.sig.ident);
    let mut inner = function.clone();
    inner.attrs.clear();
    inner.vis = syn::Visibility::Inherited;
    // Under another name: within its code, its own name is the workflow, which it may invoke.
    let code = format_ident!("__stepwell_{}", ident);
    inner.sig.ident = code.clone();
    let output = output_of(&function.sig.output);
    let (input, define) = match function.sig.inputs.get(1) {
        Some(FnArg::Typed(argument)) => {
            let ty = &argument.ty;
            let run = quote!(|ctx: ::stepwell::Ctx, input: #ty| async move {
                let output = #code(ctx, input).await?;
                ::stepwell::__private::encode_output(&output)
            });
            (quote!(#ty), quote!(::stepwell::Workflow::new(#name, #run)))
        }
        // A workflow without an input has nothing to go on with either.
        Some(FnArg::Receiver(_)) | None => {
            let run = quote!(|ctx: ::stepwell::Ctx| async move {
                let output = #code(ctx).await?;
                ::stepwell::__private::encode_output(&output)
            });
            (quote!(()), quote!(::stepwell::Workflow::without_input(#name, #run)))
        }
    };
    OwnInput(input.clone()).visit_block_mut(&mut inner.block);
    Ok(quote! {
        #(#attrs)*
        #visibility fn #ident() -> ::stepwell::Workflow<#input, #output> {
            #inner
            // A function and not a constant: the name can still be used for a local variable.
            #define
            #timeout
            #retention
            #dispatch
            #idempotency
            #schema
            #schedule
            #trigger
            #cancel_on
            #callback
            #(#flow)*
        }
    })
}

/// The type of what the workflow gives, within the `Result` that its function returns. One that has no name is any
/// JSON to whoever invokes it.
fn output_of(returned: &ReturnType) -> TokenStream {
    struct Unnamed(bool);
    impl VisitMut for Unnamed {
        fn visit_type_impl_trait_mut(&mut self, _: &mut TypeImplTrait) {
            self.0 = true;
        }
    }
    let mut unnamed = Unnamed(false);
    unnamed.visit_return_type_mut(&mut returned.clone());
    match returned {
        ReturnType::Type(_, ty) if !unnamed.0 => quote!(<#ty as ::stepwell::__private::Returns>::Output),
        ReturnType::Type(..) | ReturnType::Default => quote!(::stepwell::Payload),
    }
}

/// Names the workflow's own input wherever its code continues as new, so that anything else does not compile: the next
/// life would fail as soon as it begins.
struct OwnInput(TokenStream);

impl VisitMut for OwnInput {
    fn visit_expr_method_call_mut(&mut self, call: &mut ExprMethodCall) {
        if call.method == "continue_as_new" && call.turbofish.is_none() {
            let input = &self.0;
            call.turbofish = Some(parse_quote_spanned!(call.method.span() => ::<#input>));
        }
        visit_mut::visit_expr_method_call_mut(self, call);
    }

    // A function within the workflow may be called by others.
    fn visit_item_mut(&mut self, _: &mut Item) {}
}

/// What stands in the attribute.
#[derive(Default)]
struct Attributes {
    name: Option<String>,
    timeout_ms: Option<u64>,
    retention_ms: Option<u64>,
    /// The variant of `stepwell::Dispatch`.
    dispatch: Option<Ident>,
    key_required: bool,
    /// The function that gives the schema of its input.
    input_schema: Option<ExprPath>,
    /// The function of `stepwell::Schedule`, and what it is given.
    schedule: Option<(Ident, LitStr)>,
    /// The time zone of that.
    zone: Option<LitStr>,
    /// The events that start runs, and the condition on them.
    on: Option<LitStr>,
    when: Option<LitStr>,
    /// The events that cancel a run, and the condition on them.
    cancel_on: Option<LitStr>,
    cancel_when: Option<LitStr>,
    /// The address that is called when a run ends.
    callback: Option<LitStr>,
    /// The calls that say how many runs are at work at once.
    flow: Vec<TokenStream>,
}

/// Refuses what names no events at first sight. The engine reads the rest.
fn check_events(events: &LitStr) -> syn::Result<()> {
    let value = events.value();
    if value.split_once('/').is_some_and(|(topic, rest)| !topic.is_empty() && !rest.is_empty()) {
        return Ok(());
    }
    let message = "events are named by two parts, such as \"order/cancelled\" or \"order/*\"";
    Err(Error::new(events.span(), message))
}

impl Attributes {
    /// The call that lets events start runs of the workflow.
    fn trigger(&self) -> syn::Result<Option<TokenStream>> {
        match (&self.on, &self.when) {
            (Some(events), when) => {
                check_events(events)?;
                let when = when.as_ref().map(|when| quote!(.when(#when)));
                Ok(Some(quote!(.trigger(::stepwell::Trigger::on(#events)#when))))
            }
            (None, Some(when)) => Err(Error::new(when.span(), "a condition goes with `on = \"…\"`")),
            (None, None) => Ok(None),
        }
    }

    /// The call that lets events cancel runs of the workflow.
    fn cancel_on(&self) -> syn::Result<Option<TokenStream>> {
        match (&self.cancel_on, &self.cancel_when) {
            (Some(events), when) => {
                check_events(events)?;
                let when = when.as_ref().map_or_else(
                    || quote!(::std::option::Option::None),
                    |when| quote!(::std::option::Option::Some(#when)),
                );
                Ok(Some(quote!(.cancel_on(#events, #when))))
            }
            (None, Some(when)) => Err(Error::new(when.span(), "a condition goes with `cancel_on = \"…\"`")),
            (None, None) => Ok(None),
        }
    }
}

/// The call that lets runs of the workflow start by themselves.
fn schedule_of(schedule: Option<(Ident, LitStr)>, zone: Option<LitStr>) -> syn::Result<Option<TokenStream>> {
    match (schedule, zone) {
        (Some((by, text)), zone) => {
            let zone = zone.map(|zone| quote!(.zone(#zone)));
            Ok(Some(quote!(.schedule(::stepwell::Schedule::#by(#text)#zone))))
        }
        (None, Some(zone)) => {
            Err(Error::new(zone.span(), "a zone goes with `cron = \"…\"` or `every = \"…\"`"))
        }
        (None, None) => Ok(None),
    }
}

/// Refuses what is no cron expression at first sight. The engine reads the rest.
fn check_cron(text: &LitStr) -> syn::Result<()> {
    let value = text.value();
    let fields = value.split_whitespace().count();
    if value.trim_start().starts_with('@') || matches!(fields, 5 | 6) {
        return Ok(());
    }
    let message = format!(
        "a cron expression has five fields, or six with seconds first, and this one has {fields}: \"0 9 * * MON-FRI\""
    );
    Err(Error::new(text.span(), message))
}

/// What there is, for somebody who writes something else.
const EXPECTED: &str = "expected `name = \"…\"`, `timeout = \"…\"`, `retention = \"…\"`, `dispatch = \"…\"`, \
     `idempotency = \"…\"`, `input_schema = \"…\"`, `cron = \"…\"`, `every = \"…\"`, `zone = \"…\"`, \
     `on = \"…\"`, `when = \"…\"`, `cancel_on = \"…\"`, `cancel_when = \"…\"`, `callback = \"…\"`, `concurrency = 10`, \
     `concurrency(max = 2, key = \"…\")`, `rate(max = 100, per = \"1m\")`, \
     `throttle(max = 100, per = \"1m\")`, `priority = \"…\"`, `fair_by = \"…\"`, `hold = \"…\"`, `lane = \"…\"`, `singleton`, \
     `debounce(wait = \"30s\")` or `batch(max = 100, wait = \"10s\")`";

fn attributes_of(attributes: TokenStream) -> syn::Result<Attributes> {
    let mut found = Attributes::default();
    let parser = syn::meta::parser(|meta| {
        if meta.path.is_ident("name") {
            found.name = Some(meta.value()?.parse::<LitStr>()?.value());
            Ok(())
        } else if meta.path.is_ident("timeout") {
            let text = meta.value()?.parse::<LitStr>()?;
            let ms = duration_ms(&text.value()).ok_or_else(|| {
                Error::new(text.span(), "a timeout is a number with ms, s, m, h or d: \"90s\"")
            })?;
            found.timeout_ms = Some(ms);
            Ok(())
        } else if meta.path.is_ident("retention") {
            let text = meta.value()?.parse::<LitStr>()?;
            let ms = match text.value().as_str() {
                "forever" => Some(0),
                text => duration_ms(text),
            };
            found.retention_ms = Some(ms.ok_or_else(|| {
                Error::new(
                    text.span(),
                    "a retention is a number with ms, s, m, h or d, or \"forever\": \"7d\"",
                )
            })?);
            Ok(())
        } else if meta.path.is_ident("dispatch") {
            let text = meta.value()?.parse::<LitStr>()?;
            let variant = match text.value().as_str() {
                "direct" => "Direct",
                "queued" => "Queued",
                _ => return Err(Error::new(text.span(), "a dispatch is \"direct\" or \"queued\"")),
            };
            found.dispatch = Some(Ident::new(variant, text.span()));
            Ok(())
        } else if meta.path.is_ident("idempotency") {
            let text = meta.value()?.parse::<LitStr>()?;
            found.key_required = match text.value().as_str() {
                "required" => true,
                "optional" => false,
                _ => return Err(Error::new(text.span(), "an idempotency is \"required\" or \"optional\"")),
            };
            Ok(())
        } else if meta.path.is_ident("input_schema") {
            found.input_schema = Some(meta.value()?.parse::<LitStr>()?.parse()?);
            Ok(())
        } else if meta.path.is_ident("cron") || meta.path.is_ident("every") {
            let by = if meta.path.is_ident("cron") { "cron" } else { "every" };
            let text = meta.value()?.parse::<LitStr>()?;
            if by == "cron" {
                check_cron(&text)?;
            }
            let by = Ident::new(by, text.span());
            if found.schedule.replace((by, text)).is_some() {
                return Err(
                    meta.error("one schedule stands here: add others with `App::cron` and `App::every`")
                );
            }
            Ok(())
        } else if meta.path.is_ident("zone") {
            found.zone = Some(meta.value()?.parse::<LitStr>()?);
            Ok(())
        } else if meta.path.is_ident("on") {
            let text = meta.value()?.parse::<LitStr>()?;
            if found.on.replace(text).is_some() {
                return Err(
                    meta.error("one trigger stands here: add others with `App::on` and `App::trigger`")
                );
            }
            Ok(())
        } else if meta.path.is_ident("when") {
            found.when = Some(meta.value()?.parse::<LitStr>()?);
            Ok(())
        } else if meta.path.is_ident("cancel_on") {
            found.cancel_on = Some(meta.value()?.parse::<LitStr>()?);
            Ok(())
        } else if meta.path.is_ident("cancel_when") {
            found.cancel_when = Some(meta.value()?.parse::<LitStr>()?);
            Ok(())
        } else if meta.path.is_ident("callback") {
            let url = meta.value()?.parse::<LitStr>()?;
            if !url.value().starts_with("https://") && !url.value().starts_with("http://") {
                return Err(Error::new(url.span(), "a callback is an address: \"https://example.com/done\""));
            }
            found.callback = Some(url);
            Ok(())
        } else if let Some(call) = flow_of(&meta)? {
            found.flow.push(call);
            Ok(())
        } else {
            Err(meta.error(EXPECTED))
        }
    });
    parser.parse2(attributes)?;
    Ok(found)
}

/// The call for what says how many runs are at work at once, and in which order they are let in.
fn flow_of(meta: &ParseNestedMeta<'_>) -> syn::Result<Option<TokenStream>> {
    if meta.path.is_ident("concurrency") {
        if meta.input.peek(syn::Token![=]) {
            let max = max_of(&meta.value()?.parse()?)?;
            return Ok(Some(quote!(.concurrency(#max))));
        }
        let parts = Parts::read(meta, &["max", "key"], "", "`max = 2` or `key = \"…\"`")?;
        return parts.limit(&quote!(::core::option::Option::None), meta).map(Some);
    }
    if meta.path.is_ident("rate") {
        return rate_of(meta).map(Some);
    }
    if meta.path.is_ident("throttle") {
        return throttle_of(meta).map(Some);
    }
    if let Some(call) = starts_of(meta)? {
        return Ok(Some(call));
    }
    if ["priority", "fair_by", "lane"].iter().any(|name| meta.path.is_ident(name)) {
        let name = meta.path.require_ident()?.clone();
        let text = meta.value()?.parse::<LitStr>()?;
        return Ok(Some(quote!(.#name(#text))));
    }
    if meta.path.is_ident("hold") {
        let text = meta.value()?.parse::<LitStr>()?;
        let variant = match text.value().as_str() {
            "work" => "Work",
            "run" => "Run",
            _ => return Err(Error::new(text.span(), "a hold is \"work\" or \"run\"")),
        };
        let variant = Ident::new(variant, text.span());
        return Ok(Some(quote!(.hold(::stepwell::Hold::#variant))));
    }
    Ok(None)
}

/// What stands in the brackets of a rate, a debounce and so on.
#[derive(Default)]
struct Parts {
    max: Option<u32>,
    /// An expression in the place of that.
    max_by: Option<LitStr>,
    burst: Option<u32>,
    per: Option<u64>,
    wait: Option<u64>,
    longest: Option<u64>,
    key: Option<LitStr>,
    flag: bool,
}

impl Parts {
    /// Reads those that are named; `flag` is the name of what is either so or not.
    fn read(meta: &ParseNestedMeta<'_>, names: &[&str], flag: &str, expected: &str) -> syn::Result<Self> {
        let mut found = Self::default();
        if !meta.input.peek(syn::token::Paren) {
            return Ok(found);
        }
        let time = |part: &ParseNestedMeta<'_>| {
            let text = part.value()?.parse::<LitStr>()?;
            duration_ms(&text.value())
                .ok_or_else(|| Error::new(text.span(), "a time is a number with ms, s, m, h or d: \"1m\""))
        };
        meta.parse_nested_meta(|part| {
            let name = part.path.get_ident().map(ToString::to_string).unwrap_or_default();
            if !flag.is_empty() && name == flag {
                found.flag = part.value()?.parse::<syn::LitBool>()?.value;
                return Ok(());
            }
            if !names.contains(&name.as_str()) {
                return Err(part.error(format!("expected {expected}")));
            }
            match name.as_str() {
                // Those that need a number look for one.
                "max" => {
                    let value = part.value()?;
                    if value.peek(syn::LitStr) {
                        found.max_by = Some(value.parse()?);
                    } else {
                        found.max = Some(max_of(&value.parse()?)?);
                    }
                }
                "burst" => found.burst = Some(max_of(&part.value()?.parse()?)?),
                "per" => found.per = Some(time(&part)?),
                "wait" => found.wait = Some(time(&part)?),
                "longest" => found.longest = Some(time(&part)?),
                _ => found.key = Some(part.value()?.parse()?),
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The key as an `Option<String>`.
    fn key(&self) -> TokenStream {
        owned(self.key.as_ref())
    }

    /// The call for a limit, within a time or not.
    fn limit(&self, per_ms: &TokenStream, meta: &ParseNestedMeta<'_>) -> syn::Result<TokenStream> {
        // Where the expression says no number, the smallest one holds.
        let max = self.max.or(self.max_by.as_ref().map(|_| 1));
        let max = max.ok_or_else(|| meta.error("a limit has a `max = …`"))?;
        let (key, drop, max_by) = (self.key(), self.flag, owned(self.max_by.as_ref()));
        Ok(quote!(.limit(::stepwell::LimitSpec {
            max: #max, max_by: #max_by, key: #key, per_ms: #per_ms, drop: #drop,
        })))
    }
}

/// A text as an `Option<String>`.
fn owned(text: Option<&LitStr>) -> TokenStream {
    match text {
        Some(text) => quote!(::core::option::Option::Some(::std::string::String::from(#text))),
        None => quote!(::core::option::Option::None),
    }
}

fn optional(number: Option<u64>) -> TokenStream {
    match number {
        Some(number) => quote!(::core::option::Option::Some(#number)),
        None => quote!(::core::option::Option::None),
    }
}

/// The call for a rate.
fn rate_of(meta: &ParseNestedMeta<'_>) -> syn::Result<TokenStream> {
    let parts = Parts::read(
        meta,
        &["max", "per", "key"],
        "drop",
        "`max = 100`, `per = \"1m\"`, `key = \"…\"` or `drop = true`",
    )?;
    let Some(per) = parts.per.filter(|_| parts.max.is_some() || parts.max_by.is_some()) else {
        return Err(meta.error("a rate has a `max = …` and a `per = \"…\"`"));
    };
    parts.limit(&quote!(::core::option::Option::Some(#per)), meta)
}

/// The call for a throttle.
fn throttle_of(meta: &ParseNestedMeta<'_>) -> syn::Result<TokenStream> {
    let expected = "`max = 100`, `per = \"1m\"`, `burst = 5` or `key = \"…\"`";
    let parts = Parts::read(meta, &["max", "per", "burst", "key"], "", expected)?;
    let (Some(max), Some(per)) = (parts.max, parts.per) else {
        return Err(meta.error("a throttle has a `max = …` and a `per = \"…\"`"));
    };
    let burst = parts.burst.unwrap_or(1);
    let per = quote!(::std::time::Duration::from_millis(#per));
    Ok(match &parts.key {
        Some(key) => quote!(.throttle_by(#key, #max, #per, #burst)),
        None => quote!(.throttle(#max, #per, #burst)),
    })
}

/// The call for what says how starts become runs.
fn starts_of(meta: &ParseNestedMeta<'_>) -> syn::Result<Option<TokenStream>> {
    let rule = if meta.path.is_ident("singleton") {
        let parts = Parts::read(meta, &["key"], "cancel", "`key = \"…\"` or `cancel = true`")?;
        let (key, cancel) = (parts.key(), parts.flag);
        quote!(Singleton { key: #key, cancel: #cancel })
    } else if meta.path.is_ident("debounce") {
        let expected = "`wait = \"30s\"`, `longest = \"5m\"`, `key = \"…\"` or `leading = true`";
        let parts = Parts::read(meta, &["wait", "longest", "key"], "leading", expected)?;
        let wait = parts.wait.ok_or_else(|| meta.error("a debounce has a `wait = \"…\"`"))?;
        let (key, max, leading) = (parts.key(), optional(parts.longest), parts.flag);
        quote!(Debounce { key: #key, wait_ms: #wait, max_ms: #max, leading: #leading })
    } else if meta.path.is_ident("batch") {
        let expected = "`max = 100`, `wait = \"10s\"` or `key = \"…\"`";
        let parts = Parts::read(meta, &["max", "wait", "key"], "", expected)?;
        let (Some(max), Some(wait)) = (parts.max, parts.wait) else {
            return Err(meta.error("a batch has a `max = …` and a `wait = \"…\"`"));
        };
        let key = parts.key();
        quote!(Batch { key: #key, max: #max, wait_ms: #wait })
    } else {
        return Ok(None);
    };
    Ok(Some(quote!(.starts(::stepwell::StartRule::#rule))))
}

/// A number of runs.
fn max_of(number: &LitInt) -> syn::Result<u32> {
    let max = number.base10_parse::<u32>()?;
    if max == 0 {
        return Err(Error::new(number.span(), "with 0, no run could ever go to work: at least 1"));
    }
    Ok(max)
}

/// A number and a unit.
pub fn duration_ms(text: &str) -> Option<u64> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let factor = match unit.trim() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).filter(|&ms| ms > 0)
}

fn check(function: &ItemFn) -> syn::Result<()> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new(
            signature.fn_token.span(),
            "a workflow is an `async fn`: write `async fn` here",
        ));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new(signature.generics.span(), "a workflow has no type or lifetime parameters"));
    }
    if matches!(signature.output, ReturnType::Default) {
        return Err(Error::new(
            signature.ident.span(),
            "a workflow returns `stepwell::Result<T>`: write `-> Result<()>` if it has nothing to say",
        ));
    }
    match signature.inputs.len() {
        1 | 2 => {}
        _ => {
            return Err(Error::new(
                signature.ident.span(),
                "a workflow takes `ctx: Ctx` and at most one input: put several values into a struct",
            ));
        }
    }
    for argument in &signature.inputs {
        if let FnArg::Receiver(receiver) = argument {
            return Err(Error::new(receiver.span(), "a workflow is a free function, without `self`"));
        }
    }
    Ok(())
}
