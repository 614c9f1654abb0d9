// Builds the image of a Dockerfile without Docker: each stage is a folder, and RUN runs on this
// machine. It has no base images. It shows what COPY finds, what the commands make, and whether the
// image's command starts.

import { execFile } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative, sep } from 'node:path'
import { promisify } from 'node:util'
import { DockerfileParser } from 'dockerfile-ast'
import { validate } from 'dockerfile-utils'
import { npmEnv } from './programs.mjs'

/** Returns the problems of the text of a Dockerfile. */
export const mistakesIn = (text) =>
  validate(text).map(({ instructionLine, message }) => `${instructionLine}: ${message}`)

const patternOf = (text) =>
  new RegExp(`^${text.replaceAll(/[\\^$.+?()[\]{}|]/g, '\\$&').replaceAll('*', '[^/]*')}(/|$)`)

/** Returns a function that says whether the .dockerignore of `context` leaves out a path. */
function readIgnore(context) {
  const path = join(context, '.dockerignore')
  const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n') : []
  const rules = lines
    .map((line) => line.trim())
    .filter((line) => line && !line.startsWith('#'))
    .map((line) => ({ isTaken: line.startsWith('!'), pattern: patternOf(line.replace(/^!/, '')) }))
  return (name) => rules.findLast(({ pattern }) => pattern.test(name))?.isTaken === false
}

class Stage {
  env = {}
  workdir = '/'
  command = []

  constructor(folder) {
    this.folder = folder
    mkdirSync(folder, { recursive: true })
  }

  /** Returns where a path of the image, absolute or below the WORKDIR, is on this machine. */
  at(path) {
    return join(this.folder, path.startsWith('/') ? path : join(this.workdir, path))
  }

  /** Returns the paths below `root` that match `pattern`. Its last part may have a `*`. */
  static #found(root, pattern, isIgnored) {
    const folder = join(root, dirname(pattern))
    if (!existsSync(folder)) return []
    const names = readdirSync(folder).filter((name) => patternOf(basename(pattern)).test(name))
    return names
      .map((name) => join(folder, name))
      .filter((path) => !isIgnored(relative(root, path).split(sep).join('/')))
  }

  /** Copies as COPY does: the contents of a folder, and several sources into a folder. */
  copy(words, root, isIgnored) {
    const to = words.at(-1)
    const sources = words.slice(0, -1).flatMap((pattern) => {
      const found = Stage.#found(root, pattern, isIgnored)
      if (found.length === 0) throw new Error(`COPY ${words.join(' ')}: there is no ${pattern}`)
      return found
    })
    if (sources.length > 1 && !to.endsWith('/')) throw new Error(`COPY ${words.join(' ')}: ${to} has to end with /`)
    for (const source of sources) {
      const target = statSync(source).isDirectory() || !to.endsWith('/') ? to : join(to, basename(source))
      const filter = (path) => !isIgnored(relative(root, path).split(sep).join('/'))
      cpSync(source, this.at(target), { recursive: true, filter, verbatimSymlinks: true })
    }
  }

  run(command) {
    const env = { ...npmEnv(), NODE_TEST_CONTEXT: undefined, NODE_ENV: undefined, ...this.env }
    return promisify(execFile)('sh', ['-ec', command], { cwd: this.at('.'), env }).catch(({ stdout, stderr }) => {
      throw new Error(`RUN ${command}:\n${stdout}${stderr}`)
    })
  }
}

/**
 * Builds the image of `context`/Dockerfile in the folder `to`. Returns its last stage: `at(path)`,
 * `env`, `command`. Rejects if a COPY finds nothing, if a RUN fails, or at an instruction that it
 * does not know.
 */
export async function buildImage(context, to) {
  const stages = new Map()
  const isIgnored = readIgnore(context)
  let stage
  for (const step of DockerfileParser.parse(readFileSync(join(context, 'Dockerfile'), 'utf8')).getInstructions()) {
    const words = step.getArguments().map((word) => word.getValue())
    const does = {
      FROM() {
        const name = words[2] ?? String(stages.size)
        stage = new Stage(join(to, name))
        stages.set(name, stage)
      },
      COPY() {
        const flags = new Map(step.getFlags().map((flag) => [flag.getName(), flag.getValue()]))
        const from = flags.get('from')
        if (from === undefined) stage.copy(words, context, isIgnored)
        else stage.copy(words, stages.get(from).folder, () => false)
      },
      RUN: () => stage.run(step.getArgumentsContent()),
      ENV() {
        for (const { name, value } of step.getProperties().map((p) => ({ name: p.getName(), value: p.getValue() })))
          stage.env[name] = value
      },
      WORKDIR() {
        stage.workdir = words[0]
        mkdirSync(stage.at('.'), { recursive: true })
      },
      // These instructions change no file.
      USER() {},
      EXPOSE() {},
      CMD() {
        stage.command = JSON.parse(step.getArgumentsContent())
      },
    }[step.getKeyword()]
    if (!does) throw new Error(`${step.getKeyword()}: this builds no images with it`)
    await does()
  }
  return stage
}
