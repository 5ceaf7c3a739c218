-- verb: skip
-- from: success, error or canceled
-- to: the same
-- what: a finished job that was found in a waiting list is no longer queued; a running one is left alone
--
-- ARGV[1]  job model
-- ARGV[2]  ident
--
-- {'done', '', reindex}
-- {'refused'}    the job is not finished, or its end is being recorded: nothing is changed
-- {'gone'}

--@include claims

local job = job_of(ARGV[1], ARGV[2])

local status = redis.call('HGET', job.key, 'status')
if status == 'w' or status == 'd' or status == 'r' then
  return {'refused'}
end
local refused = refusal(job, '')
if refused then
  return refused
end
update(job.model, job.pk, {queued = false})
return {'done', '', reindex}
