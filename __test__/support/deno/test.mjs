// A node:test for Deno (2.9), whose own test context never calls its hooks. runtimes.mjs puts it in
// the place of node:test.

import * as node from 'node:test'

/** Returns `run` with a context that calls its hooks, in order, and restores its mocks. */
function withHooks(run) {
  if (typeof run !== 'function') return run
  return async (context) => {
    const hooks = []
    const own = new Proxy(context, {
      get(target, name) {
        if (name === 'after') return (hook) => hooks.push(hook)
        const value = target[name]
        return typeof value === 'function' ? value.bind(target) : value
      },
    })
    try {
      await run(own)
    } finally {
      try {
        for (const hook of hooks) await hook()
      } finally {
        context.mock.restoreAll()
      }
    }
  }
}

export const test = (...given) => node.test(...given.map(withHooks))
export const { describe, before, after } = node
