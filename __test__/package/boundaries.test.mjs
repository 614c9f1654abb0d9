// The search for import cycles works on small trees, and this project has no new cycle.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { circlesOf, roomGraph, rustGraph, typescriptGraph } from '../../scripts/module-graph.mjs'

/** Returns the files of a tree: an object of texts by their paths. */
const tree = (files) => new Map(Object.entries(files))
const edges = (graph, path) => [...graph.get(path)].sort()

describe('import cycles', () => {
  test('cycles are found in TypeScript, also if only types are imported', () => {
    const graph = typescriptGraph(
      tree({
        'lib/a.ts': "import { b } from './room/b'\n",
        'lib/room/b.ts': "import type { C } from './c'\nexport { d } from './d'\n",
        'lib/room/c.ts': "type A = import('../a').A\n",
        'lib/room/d.ts': "// import { a } from '../a'\n/* import '../a' */\nimport fs from 'node:fs'\n",
        'lib/e.ts': "const f = () => require('./room')\n",
        'lib/room/index.ts': "import '../e.js'\nimport './index'\n",
      }),
    )
    assert.deepEqual(edges(graph, 'lib/room/b.ts'), ['lib/room/c.ts', 'lib/room/d.ts'])
    assert.deepEqual(edges(graph, 'lib/room/d.ts'), [], 'a comment imports nothing')
    assert.deepEqual(circlesOf(graph), [
      ['lib/a.ts', 'lib/room/b.ts', 'lib/room/c.ts'],
      ['lib/e.ts', 'lib/room/index.ts'],
    ])
  })

  test('cycles are found between folders whose files have none', () => {
    const graph = typescriptGraph(
      tree({
        'lib/one/a.ts': "import '../two/a'\n",
        'lib/two/a.ts': '',
        'lib/two/b.ts': "import '../one/b'\n",
        'lib/one/b.ts': '',
        'lib/index.ts': "import './one/a'\n",
      }),
    )
    assert.deepEqual(circlesOf(graph), [])
    assert.deepEqual(circlesOf(roomGraph(graph, 'lib')), [['one', 'two']])
  })

  test('cycles are found in Rust, by use, by paths in the code, and through pub use', () => {
    const graph = rustGraph(
      tree({
        'src/lib.rs': 'mod a;\npub mod store;\n',
        'src/a.rs': 'use crate::store::{Store, redis::{self, Url as Address}};\nfn f() { self::g() }\n',
        'src/store/mod.rs': 'mod contract;\nmod redis;\npub use contract::Store;\n',
        'src/store/contract.rs': 'pub trait Store {}\n',
        'src/store/redis.rs': 'fn f() { let x = crate::a::g(); } // see super::Store\n',
      }),
      'src/lib.rs',
    )
    assert.deepEqual(edges(graph, 'src/a.rs'), ['src/store/contract.rs', 'src/store/redis.rs'])
    assert.deepEqual(edges(graph, 'src/store/redis.rs'), ['src/a.rs'], 'a comment uses nothing')
    assert.deepEqual(circlesOf(graph), [['src/a.rs', 'src/store/redis.rs']])
  })

  test('cycles of Rust tests do not count', () => {
    const graph = rustGraph(
      tree({
        'src/lib.rs': 'mod a;\nmod b;\n#[cfg(test)]\nmod c;\n',
        'src/a.rs': 'use super::b::B;\npub struct A;\nmod inner { use super::super::b::B; }\n',
        'src/b.rs':
          'pub struct B;\n#[cfg(test)]\n#[path = "b_tests.rs"]\nmod tests;\n#[cfg(test)]\nmod more { use crate::a::A; }\n',
        'src/b_tests.rs': 'use crate::a::A;\n',
        'src/c.rs': 'use crate::a::A;\n',
      }),
      'src/lib.rs',
    )
    assert.deepEqual([...graph.keys()].sort(), ['src/a.rs', 'src/b.rs', 'src/lib.rs'])
    assert.deepEqual(circlesOf(graph), [])
  })

  test('this project has only allowed cycles', () => {
    const script = fileURLToPath(new URL('../../scripts/check-boundaries.mjs', import.meta.url))
    const { status, stderr } = spawnSync(process.execPath, [script], { encoding: 'utf8' })
    assert.equal(status, 0, stderr)
  })
})
