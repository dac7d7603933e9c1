//! The schemas of what is written in a form of its own.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{Op, Payload, Place, RunId, access::Permission};

impl JsonSchema for Payload {
    fn schema_name() -> Cow<'static, str> {
        "Payload".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Any JSON value: Stepwell carries it and does not look into it." })
    }
}

impl JsonSchema for Place {
    fn schema_name() -> Cow<'static, str> {
        "Place".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Names a cell: the pool, its generation, and the cell's number.",
            "pattern": "^[a-z0-9]+-[0-9]+-[0-9]+$"
        })
    }
}

impl JsonSchema for RunId {
    fn schema_name() -> Cow<'static, str> {
        "RunId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Names a run: the pool, its generation, the cell, the run's number, and a random part.",
            "pattern": "^[a-z0-9_]+-[0-9]+-[0-9]+-[0-9]+-[0-9a-z]{12}$"
        })
    }
}

impl JsonSchema for Op {
    fn schema_name() -> Cow<'static, str> {
        "Op".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A step, sleep, wait or child: `kind:occurrence:name`.",
            "pattern": "^(step|sleep|wait|child):[0-9]+:"
        })
    }
}

impl JsonSchema for Permission {
    fn schema_name() -> Cow<'static, str> {
        "Permission".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A scope, for all workflows or for one: `read`, `write:greet`.",
            "pattern": "^(read|write|admin|(read|write):.+)$"
        })
    }
}
