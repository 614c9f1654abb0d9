// Runs cargo with the target, the profile and the C flags of the addon, so that tests and lints
// share its compiled dependencies. Otherwise cargo would compile them again, SQLite included.
//
//   node scripts/cargo.mjs clippy --all-targets

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/** Returns the target for which cargo builds by default, such as `x86_64-unknown-linux-gnu`. */
function hostTarget() {
  const { stdout } = spawnSync('rustc', ['-vV'], { encoding: 'utf8' })
  return /^host: (.+)$/m.exec(stdout ?? '')?.[1]
}

/** Returns the command, and all its arguments, that runs cargo with these arguments. */
export function cargoCommand([subcommand, ...words]) {
  const target = process.env.CARGO_BUILD_TARGET ?? hostTarget()
  const shared = ['--profile', 'developer', ...(target ? ['--target', target] : [])]
  // build-addon.mjs says why Windows has no script.
  const script = fileURLToPath(new URL('cargo-for-addon.sh', import.meta.url))
  const [command, ...before] = process.platform === 'win32' ? ['cargo'] : ['sh', script]
  return { command, args: [...before, subcommand, ...shared, ...words] }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { command, args } = cargoCommand(process.argv.slice(2))
  process.exitCode = spawnSync(command, args, { stdio: 'inherit' }).status ?? 1
}
