//! `#[stepwell::main]`: exports the app to the runtime.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, spanned::Spanned};

pub fn expand(attributes: &TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    if !attributes.is_empty() {
        return Err(Error::new(attributes.span(), "`#[stepwell::main]` takes no arguments"));
    }
    let function: ItemFn = syn::parse2(item)?;
    let ident = &function.sig.ident;
    if !function.sig.inputs.is_empty() || function.sig.asyncness.is_some() {
        return Err(Error::new(
            function.sig.span(),
            "`#[stepwell::main]` goes on a plain function without arguments: `fn app() -> App`",
        ));
    }
    Ok(quote! {
        #[cfg_attr(not(target_arch = "wasm32"), allow(dead_code))]
        #function

        /// The app, for what is linked with this crate on another machine than a Worker's.
        #[cfg(not(target_arch = "wasm32"))]
        #[doc(hidden)]
        #[allow(dead_code)]
        pub fn __stepwell_app() -> ::stepwell::App {
            #ident()
        }

        // What the runtime calls. Only a Worker has it; a native test just calls the function.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use ::stepwell::__private::wasm_bindgen::prelude::*;

            ::std::thread_local! {
                static APP: ::std::rc::Rc<::stepwell::App> = ::std::rc::Rc::new(#ident());
            }

            /// Goes on with a run.
            #[wasm_bindgen(
                wasm_bindgen = ::stepwell::__private::wasm_bindgen,
                wasm_bindgen_futures = ::stepwell::__private::wasm_bindgen_futures,
                js_sys = ::stepwell::__private::js_sys,
                js_name = activate
            )]
            pub fn __stepwell_activate(
                activation: ::stepwell::__private::wasm_bindgen::JsValue,
                session: ::stepwell::__private::wasm_bindgen::JsValue,
            ) -> ::stepwell::__private::js_sys::Promise {
                let app = APP.with(::std::clone::Clone::clone);
                ::stepwell::__private::activate(app, &activation, session)
            }

            /// Handles a job.
            #[wasm_bindgen(
                wasm_bindgen = ::stepwell::__private::wasm_bindgen,
                wasm_bindgen_futures = ::stepwell::__private::wasm_bindgen_futures,
                js_sys = ::stepwell::__private::js_sys,
                js_name = job
            )]
            pub fn __stepwell_job(
                call: ::stepwell::__private::wasm_bindgen::JsValue,
            ) -> ::stepwell::__private::js_sys::Promise {
                let app = APP.with(::std::clone::Clone::clone);
                ::stepwell::__private::job(app, &call)
            }

            /// Says what the app declares.
            #[wasm_bindgen(wasm_bindgen = ::stepwell::__private::wasm_bindgen, js_name = describe)]
            pub fn __stepwell_describe() -> ::std::string::String {
                APP.with(|app| ::stepwell::__private::describe(app))
            }
        };
    })
}
