//! The functions of a finished module: in which order they stand, and which of them have names.
//!
//! Owns nothing that a program does: the module does the same before and after. Functions of the same name, which the
//! compiler makes once for each type, are much alike. Side by side they compress well, and a Worker is sent and stored
//! compressed; wasm-bindgen leaves functions in the order of their size.

use std::convert::Infallible;

use wasm_encoder::{
    CodeSection, FunctionSection, Module, NameMap, NameSection,
    reencode::{Error, Reencode, utils},
};
use wasmparser::{
    CodeSectionReader, CustomSectionReader, FunctionSectionReader, KnownCustom, Name, Parser, Payload,
    TypeRef,
};

/// The module with its functions by name. Names are those that people know; of those of libraries, which are most, only
/// `keeps_all` keeps any.
pub fn in_order(module: &[u8], keeps_all: bool) -> Result<Vec<u8>, String> {
    write(module, keeps_all).map_err(|error| {
        // What it says itself is only that.
        if let Error::ParseError(error) = &error { error.to_string() } else { error.to_string() }
    })
}

fn write(module: &[u8], keeps_all: bool) -> Result<Vec<u8>, Error> {
    let mut order = Order::read(module, keeps_all)?;
    let mut written = Module::new();
    utils::parse_core_module(&mut order, &mut written, Parser::new(0), module)?;
    Ok(written.finish())
}

/// Where each function of a module goes.
#[derive(Default)]
struct Order {
    /// How many functions are imported. They are the first, and stay.
    imported: u32,
    /// Those of the module itself, as they will stand: their places of today, among themselves.
    own: Vec<u32>,
    /// The new index of each function, imported ones included.
    new: Vec<u32>,
    /// The names that are kept, by the new index.
    names: NameMap,
}

impl Order {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a module has many more sections and operators than these"
    )]
    fn read(module: &[u8], keeps_all: bool) -> Result<Self, Error> {
        let mut order = Self::default();
        let mut names: Vec<String> = Vec::new();
        let mut sizes: Vec<usize> = Vec::new();
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let is_function = matches!(import?.ty, TypeRef::Func(_) | TypeRef::FuncExact(_));
                        order.imported += u32::from(is_function);
                    }
                }
                Payload::CodeSectionEntry(body) => sizes.push(body.range().len()),
                Payload::CustomSection(section) => {
                    let KnownCustom::Name(section) = section.as_known() else { continue };
                    for subsection in section {
                        let Name::Function(given) = subsection? else { continue };
                        for naming in given {
                            let naming = naming?;
                            let index = naming.index as usize;
                            if names.len() <= index {
                                names.resize(index + 1, String::new());
                            }
                            if let Some(name) = names.get_mut(index) {
                                without_hash(naming.name).clone_into(name);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        let functions = order.imported as usize + sizes.len();
        names.resize(functions, String::new());
        let own_names = names.get(order.imported as usize..).unwrap_or_default();
        let mut own: Vec<(&String, usize, u32)> =
            own_names.iter().zip(sizes).zip(0..).map(|((name, size), place)| (name, size, place)).collect();
        own.sort_unstable();
        order.own = own.iter().map(|&(_, _, place)| place).collect();
        order.new = (0..order.imported).collect();
        order.new.resize(functions, 0);
        for (&place, index) in order.own.iter().zip(order.imported..) {
            if let Some(new) = order.new.get_mut((order.imported + place) as usize) {
                *new = index;
            }
        }
        let mut kept: Vec<(u32, &String)> = order.new.iter().copied().zip(&names).collect();
        kept.retain(|(_, name)| !name.is_empty() && (keeps_all || !is_of_a_library(name)));
        kept.sort_unstable();
        for (index, name) in kept {
            order.names.append(index, name);
        }
        Ok(order)
    }

    /// Things of the module's own functions, in the new order.
    fn sorted<T: Clone>(&self, things: &[T]) -> Vec<T> {
        self.own.iter().filter_map(|&place| things.get(place as usize).cloned()).collect()
    }
}

impl Reencode for Order {
    type Error = Infallible;

    fn function_index(&mut self, index: u32) -> Result<u32, Error> {
        Ok(self.new.get(index as usize).copied().unwrap_or(index))
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error> {
        let types: Vec<u32> = section.into_iter().collect::<Result<_, _>>()?;
        for index in self.sorted(&types) {
            functions.function(index);
        }
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), Error> {
        let bodies: Vec<_> = section.into_iter().collect::<Result<_, _>>()?;
        for body in self.sorted(&bodies) {
            self.parse_function_body(code, body)?;
        }
        Ok(())
    }

    fn parse_custom_section(
        &mut self,
        module: &mut Module,
        section: CustomSectionReader<'_>,
    ) -> Result<(), Error> {
        if !matches!(section.as_known(), KnownCustom::Name(_)) {
            return utils::parse_custom_section(self, module, section);
        }
        let mut names = NameSection::new();
        names.functions(&self.names);
        module.section(&names);
        Ok(())
    }
}

/// The name of a function as people know it. The compiler's hash at its end says nothing to them, and does not compress:
/// without the hashes, the names take half of the room.
fn without_hash(name: &str) -> &str {
    let hash = name.rfind("::h").filter(|&start| {
        name.get(start + 3..).is_some_and(|rest| {
            rest.len() >= 16 && rest.chars().take(16).all(|digit| digit.is_ascii_hexdigit())
        })
    });
    hash.and_then(|start| name.get(..start)).unwrap_or(name)
}

/// Libraries whose functions say nothing, in a stack trace, about where it happened.
const LIBRARIES: [&str; 26] = [
    "alloc",
    "base64",
    "bytes",
    "core",
    "dlmalloc",
    "futures_channel",
    "futures_core",
    "futures_util",
    "hashbrown",
    "http",
    "js_sys",
    "memchr",
    "serde",
    "serde_core",
    "serde_json",
    "sha2",
    "smallvec",
    "std",
    "stepwell_promises",
    "stepwell_protocol",
    "url",
    "wasm_bindgen",
    "wasm_bindgen_futures",
    "web_sys",
    "worker",
    "worker_sys",
];

/// Whether this is one of the many functions that are not the project's own: those of libraries, those that the compiler
/// makes of a library's for each type, what reads and writes JSON, and calls of JavaScript, whose names end with a hash.
/// They are most of the names.
fn is_of_a_library(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&', '[']);
    let path = ["mut ", "dyn "].iter().find_map(|word| path.strip_prefix(word)).unwrap_or(path);
    let krate = path.split([':', '[', '<', '>', ' ', ']']).next().unwrap_or_default();
    let is_glue = name.contains("serde_core::") || name.contains("::__wbg_");
    LIBRARIES.contains(&krate) || krate.len() <= 1 || path == krate || is_glue
}

#[cfg(test)]
mod tests {
    use wasm_encoder::{
        ConstExpr, ElementSection, Elements, ExportKind, ExportSection, Function, ImportSection, RefType,
        TableSection, TableType, TypeSection, ValType,
    };
    use wasmparser::{ElementItems, Operator};

    use super::*;

    /// A module that imports a function of the index 0 and has three of its own: `app::z` with 11, `app::a`, which
    /// calls `app::z`, and one of a library. `app::z` is exported, `app::a` is in the table.
    fn module() -> Vec<u8> {
        let mut module = Module::new();
        let mut types = TypeSection::new();
        types.ty().function([], []);
        types.ty().function([], [ValType::I32]);
        let mut imports = ImportSection::new();
        imports.import("js", "hello", wasm_encoder::EntityType::Function(0));
        let mut functions = FunctionSection::new();
        functions.function(1).function(1).function(0);
        let mut tables = TableSection::new();
        tables.table(TableType {
            element_type: RefType::FUNCREF,
            table64: false,
            minimum: 1,
            maximum: None,
            shared: false,
        });
        let mut exports = ExportSection::new();
        exports.export("z", ExportKind::Func, 1);
        let mut elements = ElementSection::new();
        elements.active(Some(0), &ConstExpr::i32_const(0), Elements::Functions((&[2]).into()));
        let mut code = CodeSection::new();
        let mut function = Function::new([]);
        function.instructions().i32_const(11).end();
        code.function(&function);
        let mut function = Function::new([]);
        function.instructions().call(0).call(1).end();
        code.function(&function);
        let mut function = Function::new([]);
        function.instructions().end();
        code.function(&function);
        let mut named = NameMap::new();
        named.append(1, "app::z::h0123456789abcdef");
        named.append(2, "app::a::h0123456789abcdef");
        named.append(3, "alloc::of");
        let mut section = NameSection::new();
        section.functions(&named);
        module.section(&types).section(&imports).section(&functions).section(&tables).section(&exports);
        module.section(&elements).section(&code).section(&section);
        module.finish()
    }

    /// All that names a function: names, exports, the table, and what is called in each body.
    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        names: Vec<(u32, String)>,
        exports: Vec<u32>,
        table: Vec<u32>,
        types: Vec<u32>,
        calls: Vec<Vec<u32>>,
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a module has many more sections and operators than these"
    )]
    fn see(module: &[u8]) -> Seen {
        wasmparser::validate(module).expect("a valid module");
        let mut seen = Seen::default();
        for payload in Parser::new(0).parse_all(module) {
            match payload.expect("readable") {
                Payload::FunctionSection(section) => {
                    seen.types = section.into_iter().map(|index| index.expect("a type")).collect();
                }
                Payload::ExportSection(section) => {
                    seen.exports = section.into_iter().map(|export| export.expect("one").index).collect();
                }
                Payload::ElementSection(section) => {
                    for element in section {
                        let ElementItems::Functions(items) = element.expect("one").items else { continue };
                        seen.table = items.into_iter().map(|index| index.expect("an index")).collect();
                    }
                }
                Payload::CodeSectionEntry(body) => {
                    let operators = body.get_operators_reader().expect("operators").into_iter();
                    let called = operators.filter_map(|operator| match operator.expect("one") {
                        Operator::Call { function_index } => Some(function_index),
                        _ => None,
                    });
                    seen.calls.push(called.collect());
                }
                Payload::CustomSection(section) => {
                    let KnownCustom::Name(section) = section.as_known() else { continue };
                    for subsection in section {
                        let Name::Function(named) = subsection.expect("names") else { continue };
                        for naming in named {
                            let naming = naming.expect("a name");
                            seen.names.push((naming.index, naming.name.to_owned()));
                        }
                    }
                }
                _ => {}
            }
        }
        seen
    }

    #[test]
    fn functions_stand_by_name_and_are_called_as_before() {
        let wanted = Seen {
            names: vec![(1, "alloc::of".to_owned()), (2, "app::a".to_owned()), (3, "app::z".to_owned())],
            exports: vec![3],
            table: vec![2],
            types: vec![0, 1, 1],
            calls: vec![vec![], vec![0, 3], vec![]],
        };
        let ordered = in_order(&module(), true).expect("ordered");
        assert_eq!(see(&ordered), wanted);
        assert_eq!(in_order(&ordered, true).expect("ordered"), ordered, "a second time changes nothing");
        let names = see(&in_order(&module(), false).expect("ordered")).names;
        assert_eq!(names, wanted.names.get(1..).expect("two"), "those of libraries are left out");
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let whole = module();
        for length in [0, 4, 20, whole.len() - 30] {
            let error = in_order(whole.get(..length).expect("a part"), true);
            assert!(error.is_err(), "{length} bytes");
        }
        assert!(in_order(b"<html>", true).expect_err("no module").contains("magic header"));
    }

    #[test]
    fn names_are_without_the_compilers_hash() {
        for (given, wanted) in [
            ("app::greet::h0123456789abcdef", "app::greet"),
            ("app::greet::{{closure}}::h0123456789abcdef[2]", "app::greet::{{closure}}"),
            ("app::hello", "app::hello"),
            ("app::h0123456789abcdefg::hi", "app::h0123456789abcdefg::hi"),
            ("__wbindgen_malloc", "__wbindgen_malloc"),
        ] {
            assert_eq!(without_hash(given), wanted);
        }
    }

    #[test]
    fn names_are_those_of_the_projects_own_code() {
        for name in [
            "core::ptr::drop_in_place<app::Order>",
            "<&mut serde_json::de::Deserializer<R> as serde_core::de::Deserializer>::deserialize_map",
            "<core::pin::Pin<P> as core::future::future::Future>::poll",
        ] {
            assert!(is_of_a_library(name), "{name}");
        }
        for name in [
            "<T as serde_core::ser::Serialize>::serialize",
            "core[c5930c85a12de822]::num::flt2dec::strategy::dragon::format_shortest",
            "app::_::<impl serde_core::ser::Serialize for app::Order>::serialize",
            "<dlmalloc[e24a27700634d609]::dlmalloc::Dlmalloc<dlmalloc[e24a27700634d609]::sys::System>>::malloc",
            "stepwell_protocol::json::Reader::value",
            "app::sockets::send::__wbg_send_a948b1a8d0804e76",
        ] {
            assert!(is_of_a_library(name), "{name}");
        }
        for name in ["app::greet::{{closure}}", "<app::Order as core::fmt::Debug>::fmt", "core_of_app::greet"]
        {
            assert!(!is_of_a_library(name), "{name}");
        }
    }
}
