-- verb: succeed
-- from: running
-- to: success
-- what: unless its code canceled or delayed it; may claim the next job
--
-- ARGV[1]  job model
-- ARGV[2]  ident
-- ARGV[3]  token of the claim, or '' for a job that nobody claimed
-- ARGV[4]  queue: model name and pk
-- ARGV[5…] the next claim: lists, token, lease, classes, as in claim.lua; or nothing
--
-- {'done', end, '', reindex, next claim}    as JSON
-- {'canceled'}    {'delayed'}    the status that the job was given while it ran: nothing is changed
-- {'refused'}     somebody else holds the claim: nothing is changed
-- {'gone'}

--@include successes

local job, token, finish = job_of(ARGV[1], ARGV[2]), ARGV[3], now_text()

local reply = end_in_success(job, token, ARGV[4], {['end'] = finish})
if not reply then
  return ended('done', finish, '', 5)
end
return reply[1] == 'refused' and ended_before(job, token, 'done', 5) or reply
