// Makes docs/demo.svg, the picture in the README, from a real run of the demo: `npm run docs:demo`.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { draw } from './demo-svg.mjs'

const at = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url))
/** Makes a Node program print its colors although it writes to a pipe. */
const AS_TERMINAL = ['--import', 'data:text/javascript,process.stdout.isTTY=true']

/** Runs a Node program and returns its recording. `command` is what a reader types to run it. */
export async function record(command, words, env = process.env) {
  const start = performance.now()
  const program = spawn(process.execPath, [...AS_TERMINAL, ...words], { env, stdio: ['ignore', 'pipe', 'inherit'] })
  const lines = []
  createInterface({ input: program.stdout }).on('line', (text) => {
    lines.push([Math.round(performance.now() - start), text])
  })
  const [code] = await once(program, 'close')
  if (code !== 0) throw new Error(`${command} ended with code ${code}`)
  return { command, lines }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  // The demo shows the path of its store. A short path fits into the picture.
  const env = { ...process.env, TMPDIR: '/tmp', NO_COLOR: '' }
  const recording = await record('npm run demo', [at('examples/demo/demo.mjs')], env)
  writeFileSync(at('docs/demo.svg'), draw(recording))
  console.log(`docs/demo.svg: ${recording.lines.length} lines in ${recording.lines.at(-1)[0]} ms`)
}
