// Bad input: what the tests of refusals share.

import assert from 'node:assert/strict'
import { timed } from './clock.mjs'

export const TYPE = [TypeError, 'ERR_INVALID_ARG_TYPE']
export const VALUE = [TypeError, 'ERR_INVALID_ARG_VALUE']
export const RANGE = [RangeError, 'ERR_OUT_OF_RANGE']

export const SECRET = 'hunter2-is-a-secret'
export const noop = () => {}

export const ticket = (content) => Buffer.from(JSON.stringify(content)).toString('base64url')
/** The content of a well-formed ticket. */
export const TICKET = {
  v: 1,
  key: SECRET,
  token: '00000000-0000-4000-8000-000000000000',
  fence: 7,
  ttl: 1_000,
  most: 0,
}

/**
 * Returns the message without the name of a function at its beginning. Checks that the code of
 * `source` calls that function.
 */
export function withoutCall(message, source) {
  const [, name] = /^(\w+)\(\)/.exec(message) ?? assert.fail(`names no function: ${message}`)
  assert.match(String(source), new RegExp(`\\b${name}\\(`), message)
  return message.replace(/^\w+\(\): /, '')
}

/**
 * Checks that `action` is refused at once, with that class and code, and with a message that names
 * the function that `source` calls, is neither short nor long, and shows no secret.
 */
export async function refused([Class, code], action, source = action) {
  const { ms, value, error } = await timed(async () => action())
  assert.ok(error, `the client accepted it: ${String(value)}`)
  assert.equal(error.constructor, Class, `${error.stack}`)
  assert.equal(error.code, code, error.message)
  withoutCall(error.message, source)
  assert.ok(error.message.length > 20, `says too little: ${error.message}`)
  assert.ok(error.message.length < 500, `says too much: ${error.message.length} characters`)
  assert.ok(!error.stack.includes(SECRET), error.stack)
  assert.ok(ms < 1_000, `at once, not after ${ms} ms`)
}
