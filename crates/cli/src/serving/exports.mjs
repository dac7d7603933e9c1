// Writes what a module exports, as JSON. Nothing of the module runs: esbuild reads it, and leaves out what it imports.
// Arguments: a file beside which Node finds esbuild, and the module.
import { createRequire } from "node:module";

const [, , beside, module] = process.argv;
const { build } = createRequire(beside)("esbuild");
const leaveOut = {
  name: "leave-out",
  setup({ onResolve }) {
    onResolve({ filter: /./ }, ({ kind }) => (kind === "entry-point" ? undefined : { external: true }));
  },
};
const { metafile } = await build({
  entryPoints: [module],
  bundle: true,
  format: "esm",
  logLevel: "silent",
  metafile: true,
  outdir: "nowhere",
  plugins: [leaveOut],
  write: false,
});
console.log(JSON.stringify(Object.values(metafile.outputs).flatMap((output) => output.exports)));
