-- verb: move
-- from: waiting or delayed
-- to: waiting or delayed
-- what: another queue, priority or place; also puts a job in a queue that stood in none
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  queue model
-- ARGV[4]  queue name
-- ARGV[5]  priority, or '' to keep it
-- ARGV[6]  prepend: '1' or ''
-- ARGV[7]  delay: '', '+<microseconds>' or '<microseconds since the epoch>'
-- ARGV[8]  mode: 'place'; 'custom' leaves the list or set to the caller
--
-- {'done', status, priority, delayed until or '', reindex}
-- {'already queued', pk of the queued job of the same identifier}
-- {'gone'}
--
-- A job whose code is being run is only marked as delayed: its worker puts it in a queue once it ends.

--@include claims
--@include places

local job = job_of(ARGV[1], ARGV[2])
local queue_model, queue_name, prepend, due = model_of(ARGV[3]), ARGV[4], ARGV[6] == '1', due_at(ARGV[7])

if is_gone(job.model, job.pk) then
  return {'gone'}
end

local hash = redis.call('HMGET', job.key, 'priority', 'queued', '_claim_token', 'status', 'identifier')
local priority = ARGV[5] ~= '' and ARGV[5] or hash[1] or '0'

if hash[4] == 'r' or hash[3] and hash[4] ~= 'e' and not is_in_hand(hash[3]) then
  local delayed_until = due and due.text or now_text()
  update(job.model, job.pk, {status = 'd', delayed_until = delayed_until, priority = priority})
  return {'done', 'r', priority, delayed_until, reindex}
end

if hash[2] == '1' then
  unplace(queue_model, queue_name, job)
else
  local other = hash[5] and other_queued(job, hash[5])
  if other then
    return {'already queued', other}
  end
end

local changes = {_claim_token = false, _rescues = false, _last_claim = false}
if ARGV[8] == 'custom' then
  update(job.model, job.pk, placed(changes, priority, due))
else
  place(job, queue_model, queue_name, priority, due, prepend, changes)
end
return {'done', changes.status, priority, changes.delayed_until or '', reindex}
