// The numbers of the bridge: both sides have the same ones, and an unknown operation is an error.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { describe, test } from 'node:test'
import { committedProtocol, generateProtocol } from '../../scripts/generate-protocol.mjs'

const require = createRequire(import.meta.url)
const { Bridge } = require('../../native.cjs')
const { NO_WAIT, OPERATION_LENGTH, OPERATION_MASK, Operation, RECORD_LENGTH, RecordKind } =
  require('../../dist/native/protocol.js')

test('lib/native/protocol.ts is what scripts/generate-protocol.mjs writes', () => {
  assert.equal(committedProtocol(), generateProtocol(), 'run node scripts/generate-protocol.mjs')
})

test('a value without a comment is not generated', () => {
  const table =
    'numbers! {\n    /// An enum.\n    enum E {\n        /// One.\n        One = 1,\n        Two = 2,\n    }\n}\n'
  assert.throws(() => generateProtocol(table), /E has no comment/)
})

describe('an unknown operation', () => {
  const UNKNOWN = [15]
  assert.deepEqual(
    UNKNOWN.filter((code) => Object.values(Operation).includes(code) || code > OPERATION_MASK),
    [],
  )

  const OPTIONS = { minReplicas: 0, prefix: '', name: 'n', maxStall: 60_000, storeTimeout: 1_000, handOffs: 32 }
  const records = new Float64Array(RECORD_LENGTH * 64)
  const tick = () => new Promise((resolve) => setTimeout(resolve, 5))

  /** Opens a client whose store is `name`. */
  function open(name) {
    const bridge = new Bridge()
    bridge.open(() => {})
    const client = bridge.openClient({ ...OPTIONS, stores: [`memory:${name}`], watch: 0 })
    const submit = (operations, texts) => bridge.submit(Float64Array.from(operations.flat()), operations.length, texts)
    const acquire = (slot) => [Operation.Acquire, slot, client, 10_000, NO_WAIT, 0, 0]
    const outcome = async (slot) => {
      for (;;) {
        const count = bridge.drain(records)
        for (let i = 0; i < count; i++) {
          const [of, kind] = records.subarray(i * RECORD_LENGTH)
          if (of === slot) return kind
        }
        await tick()
      }
    }
    return { bridge, client, submit, acquire, outcome }
  }

  for (const code of UNKNOWN) {
    test(`${code} is refused by its number, and closes no client`, async () => {
      const { client, submit, acquire, outcome } = open(`unknown-${code}`)
      const unknown = [code, 1, client, 0, 0, 0, 0]
      assert.equal(unknown.length, OPERATION_LENGTH)
      assert.throws(() => submit([unknown], ''), new RegExp(`does not know operation ${code}\\b.*different versions`))
      submit([acquire(2)], 'k\0')
      assert.equal(await outcome(2), RecordKind.Acquired)
      submit([[Operation.Release, 2, 0, 0, 0, 0, 0]], '')
      assert.equal(await outcome(2), RecordKind.Released)
    })
  }

  test('lets those before it be carried out, and no later one', async () => {
    const { bridge, client, submit, acquire, outcome } = open('unknown-between')
    assert.throws(() => submit([acquire(1), [15, 2, client, 0, 0, 0, 0], acquire(3)], 'a\0x\0b\0'), /operation 15/)
    assert.equal(await outcome(1), RecordKind.Acquired)
    submit([[Operation.Ping, 4, client, 0, 0, 0, 0]], '')
    assert.equal(await outcome(4), RecordKind.Done)
    assert.equal(bridge.token(3), null)
    submit([[Operation.Release, 1, 0, 0, 0, 0, 0]], '')
    assert.equal(await outcome(1), RecordKind.Released)
  })
})
