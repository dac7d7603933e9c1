//! Mistakes that newcomers make, and what they are told.

#[test]
fn a_mistake_in_a_workflow_is_explained_where_it_is() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
