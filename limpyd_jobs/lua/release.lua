-- verb: release
-- from: running
-- to: waiting or delayed
-- what: given back unharmed, the try not counted: to the front of its list, or for later
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim
-- ARGV[4]  queue: model name and pk
-- ARGV[5]  delay: '' or '+<microseconds>'
--
-- {'done', '', reindex}    also for one that was canceled or delayed meanwhile: nobody claims it any more
-- {'refused'}              somebody else holds the claim: nothing is changed
-- {'gone'}

--@include claims
--@include places

local job, token, queue, due = job_of(ARGV[1], ARGV[2]), ARGV[3], ARGV[4], due_at(ARGV[5])

local refused = refusal(job, token)
if refused then
  return was_ended_with(job, token) and {'done', '', {}} or refused
end

local hash = redis.call('HMGET', job.key, 'status', 'tries', 'priority')
local is_unbegun = is_in_hand(token) and hash[1] == 'w'
if hash[1] ~= 'r' and not is_unbegun then
  probe('LLEN', queue .. ':waiting')
  end_claim(queue, job, {queued = hash[1] ~= 'c' and '1'}, token)
  redis.call('RPUSH', queue .. ':waiting', job.ident)
  notify_worker(queue)
  return {'done', '', reindex}
end

probe('LLEN', queue .. ':waiting')
probe('ZCARD', queue .. ':delayed')
local changes = is_unbegun and {} or {start = false, tries = one_try_less(hash[2])}
placed(changes, hash[3] or '0', due, queue)
end_claim(queue, job, changes, token)
push(queue, job.ident, changes.status, due, true)
return {'done', '', reindex}
