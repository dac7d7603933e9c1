//! `#[job]`: a function of the same name that gives a `stepwell::JobHandler`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Error, FnArg, ItemFn, LitInt, LitStr, ReturnType, parse::Parser as _, spanned::Spanned as _};

use crate::workflow::duration_ms;

/// What makes jobs of events.
fn trigger(on: Option<LitStr>, when: Option<LitStr>) -> syn::Result<TokenStream> {
    let Some(on) = on else {
        let Some(when) = when else { return Ok(TokenStream::new()) };
        return Err(Error::new(when.span(), "`when` is a condition on events: name them with `on`"));
    };
    let when = when.map(|when| quote!(.when(#when)));
    Ok(quote!(.trigger(::stepwell::Trigger::on(#on) #when)))
}

pub fn expand(attributes: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    let mut queue = function.sig.ident.to_string();
    let mut terms = TokenStream::new();
    let (mut on, mut when) = (None, None);
    let parser = syn::meta::parser(|meta| {
        if meta.path.is_ident("queue") {
            queue = meta.value()?.parse::<LitStr>()?.value();
        } else if meta.path.is_ident("concurrency") || meta.path.is_ident("per_second") {
            let (name, max) = (&meta.path, meta.value()?.parse::<LitInt>()?);
            terms.extend(quote!(.#name(#max)));
        } else if meta.path.is_ident("timeout") {
            let text = meta.value()?.parse::<LitStr>()?;
            let ms = duration_ms(&text.value()).ok_or_else(|| {
                Error::new(text.span(), "a timeout is a number with ms, s, m, h or d: \"90s\"")
            })?;
            terms.extend(quote!(.timeout(::std::time::Duration::from_millis(#ms))));
        } else if meta.path.is_ident("on") {
            if on.replace(meta.value()?.parse::<LitStr>()?).is_some() {
                return Err(meta.error("one trigger stands here: add others with `JobHandler::trigger`"));
            }
        } else if meta.path.is_ident("when") {
            when = Some(meta.value()?.parse::<LitStr>()?);
        } else {
            return Err(
                meta.error("a job has `queue`, `concurrency`, `per_second`, `timeout`, `on` and `when`")
            );
        }
        Ok(())
    });
    parser.parse2(attributes)?;
    terms.extend(trigger(on, when)?);
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        let here = signature.fn_token.span();
        return Err(Error::new(here, "a handler of jobs is an `async fn`: write `async fn` here"));
    }
    if matches!(signature.output, ReturnType::Default) {
        let detail = "a handler of jobs returns `stepwell::Result<()>`: write `-> Result<()>`";
        return Err(Error::new(signature.ident.span(), detail));
    }
    let argument = match (signature.inputs.len(), signature.inputs.first()) {
        (1, Some(FnArg::Typed(argument))) => &argument.ty,
        _ => {
            let detail = "a handler of jobs takes one argument: `job: Job<T>`, whose `body` is what was sent";
            return Err(Error::new(signature.ident.span(), detail));
        }
    };
    let (attrs, visibility, ident) = (&function.attrs, &function.vis, &signature.ident);
    let mut inner = function.clone();
    inner.attrs.clear();
    inner.vis = syn::Visibility::Inherited;
    let code = format_ident!("__stepwell_{}", ident);
    inner.sig.ident = code.clone();
    Ok(quote! {
        #(#attrs)*
        #visibility fn #ident() -> ::stepwell::JobHandler {
            #inner
            ::stepwell::JobHandler::new(#queue, |job: #argument| #code(job)) #terms
        }
    })
}
