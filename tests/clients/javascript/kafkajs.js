// kafkajs. What the programs of this folder do and print is said in tests/kit/foreign_client.py.
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import { records, run, say, told, transactional, CHUNK } from './talk.js'

const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = kafkajs
CompressionCodecs[CompressionTypes.Snappy] = snappy
const COMPRESSIONS = [CompressionTypes.None, CompressionTypes.GZIP, CompressionTypes.Snappy]

function client (brokers) {
  const retry = { retries: 60, initialRetryTime: 50, maxRetryTime: 1000 }
  return new Kafka({ brokers, clientId: 'kafkajs', retry, logLevel: logLevel.ERROR })
}

async function produce (brokers, topic) {
  const kafka = client(brokers)
  const admin = kafka.admin()
  await admin.connect()
  const configEntries = [{ name: 'min.insync.replicas', value: '2' }]
  await admin.createTopics({ topics: [{ topic, numPartitions: 3, replicationFactor: 3, configEntries }] })
  const described = await admin.fetchTopicMetadata({ topics: [topic] })
  say('created', described.topics[0].partitions.length)
  await admin.disconnect()

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  let sent = 0
  // One partition in each send: when a leader moves to a broker that has answered for other partitions of the same send,
  // kafkajs 2.2.4 takes that answer for the moved partition's too, and its records are never sent again.
  const chunk = async compression => {
    const messages = records(sent)
    for (const partition of [0, 1, 2]) {
      const own = messages.filter((_, index) => index % 3 === partition).map(each => ({ ...each, partition }))
      await producer.send({ topic, acks: -1, compression, messages: own })
    }
    sent += CHUNK
  }
  for (const compression of COMPRESSIONS) await chunk(compression)
  say('half', sent)
  const stop = told()
  while (!stop.is) await chunk(CompressionTypes.GZIP)
  for (const compression of COMPRESSIONS) await chunk(compression)
  say('produced', sent)
  await producer.disconnect()
}

async function consume (brokers, topic, groupId) {
  const consumer = client(brokers).consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 500 })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    say('assigned', (payload.memberAssignment[topic] ?? []).sort().join(','))
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      const value = message.value.toString().split(':')[0]
      say('record', partition, message.offset, message.key, message.headers.n, value)
      const offset = `${BigInt(message.offset) + 1n}`
      await consumer.commitOffsets([{ topic, partition, offset }])
      say('committed', partition, offset)
    }
  })
  await told().promise
  await consumer.disconnect()
  say('closed')
}

async function transact (brokers, topic, transactionalId, phase) {
  const producer = client(brokers).producer({ idempotent: true, maxInFlightRequests: 1, transactionalId })
  await producer.connect()
  const one = async (name, offset, commit) => {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: transactional(name) })
    if (offset) {
      const topics = [{ topic, partitions: [{ partition: 0, offset: `${offset}` }] }]
      await transaction.sendOffsets({ consumerGroupId: `${transactionalId}-group`, topics })
    }
    await (commit ? transaction.commit() : transaction.abort())
  }
  if (phase === 'second') {
    await one('taken-over', 0, true)
    await producer.disconnect()
    return readCommitted(brokers, topic)
  }
  const go = told()
  for (let number = 0; number < 6; number++) {
    await one(`t${number}`, number + 1, number % 2 === 0)
    if (number === 2) {
      say('half', number)
      await go.promise
    }
  }
  const transaction = await producer.transaction()
  await transaction.send({ topic, messages: transactional('open') })
  say('open')
  await new Promise(resolve => setTimeout(resolve, 600_000))
}

async function readCommitted (brokers, topic) {
  const consumer = client(brokers).consumer({ groupId: `reader-of-${topic}` })
  const last = new Set(transactional('taken-over').map(each => each.value))
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await new Promise(resolve => {
    consumer.run({
      eachMessage: async ({ message }) => {
        say('value', message.value)
        last.delete(message.value.toString())
        if (last.size === 0) resolve()
      }
    })
  })
  say('closed')
}

run({ produce, consume, transact })
