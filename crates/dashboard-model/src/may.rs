//! What the one who is signed in may do, by the table of routes. What nobody may ask for is not drawn.

use stepwell_protocol::{
    access::{Permission, Scope, SessionView},
    routes::{self, Route, Subject},
    sorting::sort,
};

use crate::{form::Action, place::encoded};

/// What somebody may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct May {
    scopes: Vec<Permission>,
    is_root: bool,
}

impl May {
    /// What a session may do. No session may do what takes the deployment's own key.
    pub fn of(session: &SessionView) -> Self {
        Self { scopes: session.scopes.clone(), is_root: false }
    }

    /// What the deployment's own key may do.
    pub fn root() -> Self {
        Self { scopes: vec![Permission::all(Scope::Admin)], is_root: true }
    }

    /// Whether a route may be asked; of this workflow, if it is about one.
    #[inline(never)]
    pub fn ask(&self, route: Route, workflow: Option<&str>) -> bool {
        let entry = route.entry();
        let scope = match entry.scope {
            routes::Scope::Open => return true,
            routes::Scope::Read => Scope::Read,
            routes::Scope::Write => Scope::Write,
            routes::Scope::Admin => Scope::Admin,
            routes::Scope::Root => return self.is_root,
        };
        let is_narrow = match entry.subject {
            Subject::Whole => false,
            Subject::Run | Subject::Workflow | Subject::Selected => true,
            Subject::Visible => return self.scopes.iter().any(|permission| permission.scope >= scope),
        };
        self.scopes.iter().any(|permission| {
            let is_about = match &permission.workflow {
                None => true,
                Some(only) => is_narrow && workflow == Some(only),
            };
            permission.scope >= scope && is_about
        })
    }

    /// The workflows that may be seen, if not all.
    pub fn only_workflows(&self) -> Option<Vec<String>> {
        let mut only: Vec<String> =
            self.scopes.iter().map(|permission| permission.workflow.clone()).collect::<Option<_>>()?;
        sort(&mut only);
        only.dedup();
        Some(only)
    }

    /// Something that can be done by a route about these names; nothing, if it may not be asked. The first name is that of
    /// the workflow, if the route is about one.
    #[inline(never)]
    pub fn act(&self, route: Route, names: &[&str], label: &str, explained: &str) -> Option<Action> {
        let workflow = names.first().copied().filter(|_| route.entry().subject == Subject::Workflow);
        let is_allowed = self.ask(route, workflow);
        is_allowed.then(|| Action::new(route.entry().method.as_str(), path(route, names), label, explained))
    }
}

/// The path of a route about these names. Parameters that have none stay, for a field of a form.
pub fn path(route: Route, names: &[&str]) -> String {
    let mut names = names.iter();
    let mut path = String::new();
    for part in route.entry().path.split('/').skip(1) {
        let name = if part.starts_with('{') { names.next() } else { None };
        path.push('/');
        path.push_str(&name.map_or_else(|| part.to_owned(), |name| encoded(name)));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(scopes: &[&str]) -> May {
        May { scopes: scopes.iter().map(|scope| scope.parse().expect(scope)).collect(), is_root: false }
    }

    #[test]
    fn a_key_may_ask_what_its_scopes_say() {
        let (read, write, admin) = (may(&["read"]), may(&["write"]), may(&["admin"]));
        for route in Route::ALL {
            let needs = route.entry().scope;
            assert_eq!(read.ask(*route, Some("greet")), needs <= routes::Scope::Read, "{}", route.name());
            assert_eq!(write.ask(*route, Some("greet")), needs <= routes::Scope::Write, "{}", route.name());
            assert_eq!(admin.ask(*route, Some("greet")), needs <= routes::Scope::Admin, "{}", route.name());
            assert!(May::root().ask(*route, None), "{}", route.name());
        }
    }

    #[test]
    fn a_key_for_one_workflow_may_ask_about_that_one_only() {
        let narrow = may(&["write:greet"]);
        assert!(narrow.ask(Route::StartRun, Some("greet")));
        assert!(!narrow.ask(Route::StartRun, Some("other")));
        assert!(!narrow.ask(Route::StartRun, None));
        assert!(narrow.ask(Route::ListRuns, None));
        assert!(!narrow.ask(Route::ListSchedules, Some("greet")));
        assert!(!narrow.ask(Route::PauseWorkflow, Some("greet")));
        assert_eq!(narrow.only_workflows(), Some(vec!["greet".to_owned()]));
        assert_eq!(may(&["write:greet", "read"]).only_workflows(), None);
        assert_eq!(narrow.act(Route::StartRun, &["other"], "Start", ""), None);
    }

    #[test]
    fn a_path_has_names_where_its_route_has_parameters() {
        assert_eq!(path(Route::ShowWorkflow, &["send mail"]), "/api/workflows/send%20mail");
        assert_eq!(path(Route::ShowTrigger, &["order", "a/b"]), "/api/triggers/order/a%2Fb");
        assert_eq!(path(Route::PutSchedule, &[]), "/api/schedules/{schedule}");
        assert_eq!(path(Route::ShowJob, &["mails", "1-2-3"]), "/api/queues/mails/jobs/1-2-3");
    }
}
