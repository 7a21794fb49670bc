// How the programs of this folder talk to the test that runs them; see tests/kit/foreign_client.py.
export const CHUNK = 50

export function say (...words) {
  process.stdout.write(words.join('\t') + '\n')
}

// Is set when the test has written a line.
export function told () {
  const state = { is: false }
  state.promise = new Promise(resolve => {
    process.stdin.once('data', () => {
      state.is = true
      process.stdin.pause()
      resolve()
    })
  })
  return state
}

export function records (from) {
  return Array.from({ length: CHUNK }, (_, index) => {
    const number = from + index
    return { key: `k${number}`, value: `${number}:${'v'.repeat(200)}`, headers: { n: `${number}` } }
  })
}

export function transactional (name) {
  return Array.from({ length: 9 }, (_, n) => ({ key: name, value: `${name}-${n}`, partition: n % 3 }))
}

export async function run (commands) {
  const [command, bootstrap, ...args] = process.argv.slice(2)
  await commands[command](bootstrap.split(','), ...args)
  process.exit(0)
}
