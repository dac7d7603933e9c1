// What the runtime sees of a module: its entrypoint and its classes. A panic that does not unwind leaves the module
// unusable; the next call begins with a new one, and objects that belong to the old one are constructed again.
import { WorkerEntrypoint } from "cloudflare:workers";
import * as exports from "./index.js";

Error.stackTraceLimit = 100;

const UNWINDS = "$UNWINDS";

// Shared with the crate `worker`: whether the module has crashed, and how many there were before it.
const state = exports.__worker_init_state();

function renew() {
  if (!state.criticalError) return;
  console.log("The module has crashed; a new one takes over");
  exports.__wbg_reset_state();
  state.criticalError = false;
  state.instanceId++;
}

function note(error) {
  if (!(error instanceof WebAssembly.RuntimeError)) return;
  console.error("Critical", error);
  state.criticalError = true;
}

if (!UNWINDS) addEventListener("error", (event) => note(event.error));

// A method that renews the module before it is called, and notes a crash in it, at once or later.
const guarding = {
  apply(method, self, args) {
    renew();
    try {
      const result = Reflect.apply(method, self, args);
      if (!(result instanceof Promise)) return result;
      return result.catch((error) => {
        note(error);
        throw error;
      });
    } catch (error) {
      note(error);
      throw error;
    }
  },
};

// An instance that is constructed again when its module is not the current one.
function revived(construct) {
  let instance = construct();
  let life = state.instanceId;
  const current = () => {
    if (life !== state.instanceId) [instance, life] = [construct(), state.instanceId];
    return instance;
  };
  const traps = {
    get(_, name, self) {
      const value = Reflect.get(current(), name, self);
      return UNWINDS || typeof value !== "function" ? value : new Proxy(value, guarding);
    },
  };
  for (const trap of ["set", "has", "deleteProperty", "getPrototypeOf", "setPrototypeOf", "getOwnPropertyDescriptor", "defineProperty", "ownKeys"]) {
    traps[trap] = (_, ...args) => Reflect[trap](instance, ...args);
  }
  return new Proxy({}, traps);
}

function reviving(Class) {
  return new Proxy(Class, {
    construct(_, args, target) {
      if (!UNWINDS) renew();
      try {
        return revived(() => Reflect.construct(Class, args, target));
      } catch (error) {
        if (!UNWINDS) state.criticalError = true;
        throw error;
      }
    },
  });
}

class Entrypoint extends WorkerEntrypoint {}

export default reviving(Entrypoint);
