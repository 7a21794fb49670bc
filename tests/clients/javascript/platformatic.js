// @platformatic/kafka. What the programs of this folder do and print is said in tests/kit/foreign_client.py.
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { CHUNK, records, run, say, told, transactional } from './talk.js'

const COMPRESSIONS = ['none', 'gzip', 'snappy', 'lz4']

function options (bootstrapBrokers) {
  return { clientId: 'platformatic', bootstrapBrokers, retries: 60, retryDelay: 200 }
}

function newProducer (brokers) {
  return new Producer({ ...options(brokers), serializers: stringSerializers, idempotent: true, acks: -1 })
}

// It gives up when a broker refuses the connection: whoever uses it tries again.
async function again (attempt) {
  for (let left = 100; ; left--) {
    try {
      return await attempt()
    } catch (error) {
      if (left === 0) throw error
      await new Promise(resolve => setTimeout(resolve, 100))
    }
  }
}

async function produce (brokers, topic) {
  const admin = new Admin(options(brokers))
  const configs = [{ name: 'min.insync.replicas', value: '2' }]
  const [created] = await admin.createTopics({ topics: [topic], partitions: 3, replicas: 3, configs })
  say('created', created.partitions)
  await admin.close()

  const producer = newProducer(brokers)
  let sent = 0
  const chunk = async compression => {
    const messages = records(sent).map(each => ({ topic, ...each }))
    await again(() => producer.send({ compression, messages }))
    sent += CHUNK
  }
  for (const compression of COMPRESSIONS) await chunk(compression)
  say('half', sent)
  const stop = told()
  while (!stop.is) await chunk('lz4')
  for (const compression of COMPRESSIONS) await chunk(compression)
  say('produced', sent)
  await producer.close()
}

// A member ends with an error when a broker dies that it talks to: whoever runs it starts another one.
async function consume (brokers, topic, groupId, groupProtocol) {
  const stop = told()
  while (!stop.is) {
    try {
      await member(brokers, topic, groupId, groupProtocol, stop)
    } catch (error) {
      console.error(error.message)
    }
  }
  say('closed')
}

async function member (brokers, topic, groupId, groupProtocol, stop) {
  const times = groupProtocol === 'classic' ? { sessionTimeout: 6000, heartbeatInterval: 500 } : {}
  const consumer = new Consumer({
    ...options(brokers), groupId, groupProtocol, ...times, deserializers: stringDeserializers, autocommit: false
  })
  let known = ''
  for (const event of ['consumer:group:join', 'consumer:heartbeat:end']) {
    consumer.on(event, () => {
      const partitions = (consumer.assignments ?? []).flatMap(each => each.partitions).sort().join(',')
      if (partitions !== known) say('assigned', partitions)
      known = partitions
    })
  }
  try {
    const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest' })
    stop.promise.then(() => stream.close())
    for await (const message of stream) {
      const { partition, offset, key, headers } = message
      say('record', partition, offset, key, headers.get('n'), message.value.split(':')[0])
      await message.commit()
      say('committed', partition, offset + 1n)
    }
  } finally {
    await consumer.close(true)
  }
}

async function transact (brokers, topic, transactionalId, phase) {
  // Without an id and an epoch it says that it was producer 0 with epoch 0, and is fenced whenever that is not so.
  const another = () => new Producer({
    ...options(brokers),
    serializers: stringSerializers,
    idempotent: true,
    acks: -1,
    transactionalId,
    producerId: -1n,
    producerEpoch: -1
  })
  let producer = another()
  const begun = name => again(async () => {
    try {
      const transaction = await producer.beginTransaction()
      await transaction.send({ messages: transactional(name).map(each => ({ topic, ...each })) })
      return transaction
    } catch (error) {
      // It cannot begin again after a failure. Another one with this id ends what is open.
      producer = another()
      throw error
    }
  })
  const one = async (name, commit) => {
    const transaction = await begun(name)
    await again(() => commit ? transaction.commit() : transaction.abort())
  }
  if (phase === 'second') {
    await one('taken-over', true)
    return readCommitted(brokers, topic)
  }
  const go = told()
  for (let number = 0; number < 6; number++) {
    await one(`t${number}`, number % 2 === 0)
    if (number === 2) {
      say('half', number)
      await go.promise
    }
  }
  await begun('open')
  say('open')
  await new Promise(resolve => setTimeout(resolve, 600_000))
}

async function readCommitted (brokers, topic) {
  const groupId = `reader-of-${topic}`
  const consumer = new Consumer({ ...options(brokers), groupId, deserializers: stringDeserializers, isolationLevel: 1 })
  const last = new Set(transactional('taken-over').map(each => each.value))
  for await (const { value } of await consumer.consume({ topics: [topic], mode: 'earliest' })) {
    say('value', value)
    last.delete(value)
    if (last.size === 0) break
  }
  say('closed')
}

run({ produce, consume, transact })
