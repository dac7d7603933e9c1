//! What is killed: Stepwell on workerd, or under Miniflare if programs are to be called through a queue.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::sleep;

use super::{Plan, report::Kills};
use crate::{
    engine::{Build, Client, Engine, Form},
    miniflare::{Miniflare, Setup},
};

/// How many programs a cell calls at once under Miniflare: few, so that some runs find no place.
const WINDOW: u32 = 4;

/// How programs are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// By their cells, on workerd.
    #[default]
    Direct,
    /// Through a queue, under Miniflare.
    Queued,
    /// Half of them one way, half the other, under Miniflare.
    Both,
}

impl Transport {
    /// By its name on the command line.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "direct" => Ok(Self::Direct),
            "queued" => Ok(Self::Queued),
            "both" => Ok(Self::Both),
            other => bail!("there is no transport '{other}': say direct, queued or both"),
        }
    }

    /// The workflow of the n-th run.
    pub fn workflow(self, number: usize) -> &'static str {
        match self {
            Self::Direct => "mixed",
            Self::Queued => "mixed_queued",
            Self::Both => ["mixed", "mixed_queued"][number % 2],
        }
    }
}

/// What is killed.
#[derive(Debug)]
pub enum Target {
    /// Engine and app are processes of their own in the split form.
    Workerd(Engine),
    /// All of it is killed at once, and the queue is lost.
    Miniflare(Miniflare),
}

impl Target {
    /// Starts it.
    pub async fn start(form: Form, build: Build, plan: &Plan) -> Result<Self> {
        Ok(match plan.transport {
            Transport::Direct => Self::Workerd(Engine::start_build(form, build, plan.cells).await?),
            Transport::Queued | Transport::Both => {
                let setup = Setup { form, build, cells: plan.cells, window: WINDOW };
                Self::Miniflare(Miniflare::start(setup).await?)
            }
        })
    }

    /// A client that brings the key.
    pub fn client(&self) -> Client {
        match self {
            Self::Workerd(engine) => engine.client(),
            Self::Miniflare(miniflare) => miniflare.client(),
        }
    }

    /// What it wrote so far.
    pub fn log(&self) -> String {
        match self {
            Self::Workerd(engine) => engine.engine.log(),
            Self::Miniflare(miniflare) => miniflare.log(),
        }
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        match self {
            Self::Workerd(engine) => engine.engine.is_running(),
            Self::Miniflare(miniflare) => miniflare.is_running(),
        }
    }

    /// Kills and restarts: in two processes the engine, the app, or both, as `whom` of ten says.
    pub async fn kill(&mut self, whom: u32, down: Duration, kills: &mut Kills) -> Result<()> {
        match self {
            Self::Workerd(Engine { app: Some(app), .. }) if whom < 4 => {
                kills.app += 1;
                app.kill();
                sleep(down).await;
                app.restart().await
            }
            Self::Workerd(Engine { engine, app: Some(app), .. }) if whom < 5 => {
                kills.both += 1;
                app.kill();
                engine.kill();
                sleep(down).await;
                engine.restart().await?;
                app.restart().await
            }
            Self::Workerd(Engine { engine, .. }) => {
                kills.engine += 1;
                engine.kill();
                sleep(down).await;
                engine.restart().await
            }
            Self::Miniflare(miniflare) => {
                kills.both += 1;
                miniflare.kill();
                sleep(down).await;
                miniflare.restart().await
            }
        }
    }
}
